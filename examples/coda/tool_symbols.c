/* tool_symbols.c -- graphs from files, with numbers, or ranges, for their symbols. */
#include <stdlib.h>
#include <string.h>

#include "tool.h"

/* ---- Ranges: other lines `dim` ---- */

static bool is_range(const struct binding *b) { return strstr(b->path, ".."); }

bool has_ranges(const struct options *opt)
{
    for (int i = 0; i < opt->dims; i++)
        if (is_range(&opt->dim[i])) return true;
    return false;
}

/* The line that declares a symbol; NULL if there is none. */
static char *find_line(char *text, const char *symbol)
{
    size_t n = strlen(symbol);
    for (char *line = text; line; line = strchr(line, '\n'), line += line != NULL) {
        char *s = line + strspn(line, " \t");
        if (strncmp(s, "dim", 3) || (s[3] != ' ' && s[3] != '\t')) continue;
        s += 3 + strspn(s + 3, " \t");
        if (*s++ == '%' && !strncmp(s, symbol, n) && strchr(" \t=", s[n])) return line;
    }
    return NULL;
}

/* "dim %T = 1..64", with the step that the line has, unless the range has one of its own. */
static int print_line(char *out, size_t size, const char *line, const struct binding *b)
{
    const char *step = strstr(line, " step "), *end = line + strcspn(line, "\n;#");
    int kept = step && step < end && !strstr(b->path, "step") ? (int)(end - step) : 0;
    return snprintf(out, size, "dim %%%s = %s%s%s%.*s", b->name, b->path, is_range(b) ? "" : "..",
                    is_range(b) ? "" : b->path, kept, kept ? step : "");
}

/* The text with another range, or NULL after a complaint. */
static char *with_range(const struct options *opt, char *text, const struct binding *b)
{
    char *line = find_line(text, b->name);
    if (!line) return complain("%s: the graph has no symbol \"%s\"", opt->file, b->name), NULL;
    const char *rest = line + strcspn(line, "\n");
    size_t before = (size_t)(line - text), room = (size_t)print_line(NULL, 0, line, b);
    char *out = malloc(before + room + strlen(rest) + 1);
    if (!out) return complain("out of memory"), NULL;
    memcpy(out, text, before);
    print_line(out + before, room + 1, line, b);
    strcpy(out + before + room, rest);
    return out;
}

static char *with_ranges(const struct options *opt, char *text)
{
    for (int i = 0; text && i < opt->dims; i++) {
        char *other = with_range(opt, text, &opt->dim[i]);
        free(text);
        text = other;
    }
    return text;
}

/* ---- Numbers ---- */

/* The last --dim that names it. */
static int value_of(const struct options *opt, const char *symbol, int64_t *out)
{
    uint64_t value = 0;
    for (int i = opt->dims - 1; i >= 0; i--) {
        if (strcmp(opt->dim[i].name, symbol) != 0) continue;
        if (!set_number(opt->dim[i].path, 0, INT64_MAX, &value))
            return complain("--dim %s: \"%s\" is no number", symbol, opt->dim[i].path);
        *out = (int64_t)value;
        return 0;
    }
    return complain("%s: %s has no value: --dim %s=N", opt->file, symbol, symbol);
}

static int values_of(const struct options *opt, const coda_graph *g, int64_t *values)
{
    int n = coda_graph_symbols(g), bad = 0;
    for (int i = 0; i < opt->dims && !bad; i++) {
        coda_symbol_info s = CODA_SYMBOL_INFO_INIT; /* of a wrong name, the last one's in the end */
        int j = 0;
        while (j < n && !coda_graph_symbol(g, j, &s) && strcmp(s.name, opt->dim[i].name)) j++;
        if (j == n)
            bad = complain("%s: the graph has no symbol \"%s\"%s%s", opt->file, opt->dim[i].name,
                           n ? "; it has " : "", n ? s.name : "");
    }
    for (int i = 0; i < n && !bad; i++) {
        coda_symbol_info s = CODA_SYMBOL_INFO_INIT;
        coda_graph_symbol(g, i, &s);
        bad = value_of(opt, s.name, &values[i]);
    }
    return bad;
}

/* With the numbers of --dim for symbols. */
static coda_graph *bound(const struct options *opt, coda_graph *g)
{
    coda_graph *out = NULL;
    int n = coda_graph_symbols(g);
    int64_t *values = calloc((size_t)n + 1, sizeof *values);
    if (!values) complain("out of memory");
    else if (!values_of(opt, g, values) && coda_graph_bind(&out, g, values, n) != CODA_OK)
        complain("%s: %s", opt->file, coda_error());
    free(values);
    coda_graph_free(g);
    return out;
}

coda_graph *graph_open(const struct options *opt)
{
    coda_graph *g = NULL;
    char *text = text_read(opt->file);
    bool ranges = has_ranges(opt);
    if (ranges && text) text = with_ranges(opt, text);
    if (text && coda_graph_parse(&g, text) != CODA_OK) complain("%s: %s", opt->file, coda_error());
    free(text);
    return g && opt->dims && !ranges ? bound(opt, g) : g;
}

coda_graph *graph_open_bound(const struct options *opt)
{
    for (int i = 0; i < opt->dims; i++)
        if (is_range(&opt->dim[i]))
            return complain("--dim %s: a run has one value, not %s", opt->dim[i].name, opt->dim[i].path),
                   NULL;
    coda_graph *g = graph_open(opt);
    return g && !opt->dims && coda_graph_symbols(g) ? bound(opt, g) : g;
}
