/*
 * tool_ops.c -- coda ops: the words of the text form, and what a map of one's own may call.
 *
 *     coda ops            a line for each
 *     coda ops NAME       all that there is to say of one, with a graph that has it
 *     coda ops --json     the same of all, or of NAME: a list of objects
 */
#include <stdlib.h>
#include <string.h>

#include "tool.h"

static const struct {
    const char *one, *several, *use;
} kinds[] = {
    [CODA_WORD_OPERATION] = {"operation", "Operations", ""},
    [CODA_WORD_MAP] = {"map", "Maps", ", element by element: for coda_apply, and as `score` of attention"},
    [CODA_WORD_REDUCTION] = {"reduction", "Reductions", ", of a row: for coda_reduce"},
    [CODA_WORD_FUNCTION] = {"function", "Functions", " that the source of a map may call, as math::NAME"},
};

static const char *space(const coda_word_info *w) { return w->kind == CODA_WORD_FUNCTION ? "math::" : ""; }

/* ---- As JSON ---- */

static void print_string(const char *key, const char *text)
{
    fprintf(output, "\"%s\": \"", key);
    for (; *text; text++) {
        if (*text == '\n') fputs("\\n", output);
        else if (*text == '"' || *text == '\\') fprintf(output, "\\%c", *text);
        else fputc(*text, output);
    }
    fputc('"', output);
}

static void print_json(const coda_word_info *w, const char *example, bool first)
{
    const char *const key[] = {"kind",   "name",    "operands", "attributes",
                               "result", "meaning", "calls",    "gradient"};
    const char *const text[] = {kinds[w->kind].one, w->name,    w->operands, w->attributes,
                                w->result,          w->meaning, w->calls,    w->gradient};
    fputs(first ? "[{" : ",\n {", output);
    for (size_t i = 0; i < sizeof key / sizeof *key; i++) {
        print_string(key[i], text[i]);
        fputs(", ", output);
    }
    print_string("example", example);
    fputc('}', output);
}

/* ---- For people ---- */

/* The first sentence, or what is ahead of the words on attributes. */
static int first_part(const char *text)
{
    const char *end = text;
    while (*end && *end != ';' && (strncmp(end, ". ", 2) != 0 || end[-1] == '.')) end++;
    if (!*end && end > text && end[-1] == '.') end--;
    return (int)(end - text);
}

/* Most letters of a text that fill a line, cut at a blank. */
static int fill_line(const char *text, int length, int width)
{
    if (length <= width) return length;
    int n = width;
    while (n && text[n] != ' ') n--;
    return n ? n : (int)strcspn(text, " ");
}

static void print_line(const coda_word_info *w)
{
    enum { WIDTH = 74 };
    char label[64];
    bool function = w->kind == CODA_WORD_FUNCTION;
    snprintf(label, sizeof label, function ? "%s(%s)" : "%s", w->name, w->operands);
    int whole = first_part(w->meaning), n = fill_line(w->meaning, whole, WIDTH);
    fprintf(output, "  %-20s %.*s%s\n", label, n, w->meaning, n < whole ? " ..." : "");
}

/* In lines of at most 78 columns behind a label. */
static void print_field(const char *label, const char *text)
{
    enum { WIDTH = 66 };
    if (!*text) return;
    for (const char *head = label; *text; head = "") {
        int n = fill_line(text, (int)strlen(text), WIDTH);
        fprintf(output, "  %-10s %.*s\n", head, n, text);
        text += n;
        text += strspn(text, " ");
    }
}

static void print_example(const char *example)
{
    const char *label = "example";
    for (; *example; label = "") {
        int n = (int)strcspn(example, "\n");
        fprintf(output, "  %-10s %.*s\n", label, n, example);
        example += n + (example[n] == '\n');
    }
}

static void print_word(const coda_word_info *w, const char *example)
{
    fprintf(output, "%s%s: %s%s\n", space(w), w->name, kinds[w->kind].one, kinds[w->kind].use);
    print_field("is", w->meaning);
    print_field("operands", w->operands);
    print_field("attributes", w->attributes);
    print_field("result", w->result);
    print_field("gradient", w->gradient);
    print_field("in C", w->calls);
    print_example(example);
}

/* ---- The command ---- */

/* Prints word `index` alone, or all of them if that is -1. */
static int print_words(int index, bool json)
{
    coda_word_kind last = CODA_WORD_FUNCTION;
    char example[1024];
    for (int i = index < 0 ? 0 : index; i < (index < 0 ? coda_words() : index + 1); i++) {
        coda_word_info w = CODA_WORD_INFO_INIT;
        int64_t length = coda_word_example(i, example, sizeof example);
        if (coda_word(i, &w) != CODA_OK || length < 0) return complain("%s", coda_error());
        if (json) print_json(&w, example, i == 0 || index >= 0);
        else if (index >= 0) print_word(&w, example);
        else {
            if (i == 0 || w.kind != last)
                fprintf(output, "%s%s%s:\n", i ? "\n" : "", kinds[w.kind].several, kinds[w.kind].use);
            print_line(&w);
        }
        last = w.kind;
    }
    if (json) fputs("]\n", output);
    else if (index < 0) fputs("\ncoda ops NAME says more of one.\n", output);
    return 0;
}

int ops(int argc, char **argv)
{
    const char *name = NULL;
    bool json = false;
    for (int i = 0; i < argc; i++) {
        if (!strcmp(argv[i], "--json")) json = true;
        else if (!strncmp(argv[i], "--", 2)) return misuse("ops has no option %s", argv[i]);
        else if (name) return misuse("ops takes one NAME, not also \"%s\"", argv[i]);
        else name = argv[i];
    }
    int index = name ? coda_word_find(name) : -1;
    if (name && index < 0) return complain("%s", coda_error());
    return print_words(index, json);
}
