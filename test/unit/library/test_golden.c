/*
 * test_golden.c -- the text of every stage, for the graphs in test/golden.
 *
 * A file holds its input and what must come of it, in sections:
 *
 *     # >>> graph                     the input, as a person wrote it
 *     # >>> derivation                which rewrites fired
 *     # >>> rewrite                   the graph after them
 *     # >>> plan sm_90a               programs, steps, buffers
 *     # >>> source @0                 the text of the plan's kernel 0
 *     # <<<
 *
 * After a section's name may stand fold=copy, fold=in_place, no_fusion. A file has the sections that it
 * wants; `make bless` fills them, also empty ones, with what the library says now.
 */
#include "base.h" /* before check.h, which has a macro called fail */
#include "util_print.h"

#include "tests.h" /* last: Check has a macro named fail */
#include <dirent.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define FOLDER "test/golden"
enum { MOST_FILES = 128 };

static char *file[MOST_FILES];
static int files;

/* ---- What the library says ---- */

static coda_graph *parse(const char *path, const char *text)
{
    coda_graph *g;
    ck_assert_msg(coda_graph_parse(&g, text) == CODA_OK, "%s: %s", path, coda_error());
    return g;
}

static coda_plan *plan(const char *path, const coda_graph *g, const char *head)
{
    char arch[32] = "sm_90a";
    const char *named = strstr(head, " sm_");
    coda_compile_options opt = CODA_COMPILE_OPTIONS_INIT;
    coda_plan *p;
    if (named) sscanf(named, " %31s", arch);
    opt.device = CODA_DEVICE_NONE;
    opt.arch = arch;
    opt.flags = CODA_PLAN_ONLY | (strstr(head, " no_fusion") ? CODA_NO_FUSION : 0);
    if (strstr(head, " fold=copy")) opt.fold = CODA_FOLD_COPY;
    if (strstr(head, " fold=in_place")) opt.fold = CODA_FOLD_IN_PLACE;
    ck_assert_msg(coda_compile(&p, g, &opt) == CODA_OK, "%s: %s: %s", path, head, coda_error());
    return p;
}

static char *source(const char *path, const coda_plan *p, const char *head)
{
    coda_kernel_info k = CODA_KERNEL_INFO_INIT;
    const char *at = strchr(head, '@');
    ck_assert_msg(at && coda_plan_kernel(p, atoi(at + 1), &k) == CODA_OK, "%s: no kernel for \"%s\"", path,
                  head);
    return strdup(k.source);
}

/* The body that a section should have. */
static char *body(const char *path, const coda_graph *g, const char *head)
{
    static const struct {
        const char *word;
        coda_text what;
    } stage[] = {
        {"derivation", CODA_TEXT_DERIVATION}, {"rewrite", CODA_TEXT_REWRITTEN}, {"plan", CODA_TEXT_PLAN}};
    coda_plan *p = plan(path, g, head);
    char *s = strncmp(head, "source", 6) == 0 ? source(path, p, head) : NULL;
    for (int i = 0; i < ARRAY_SIZE(stage); i++)
        if (strncmp(head, stage[i].word, strlen(stage[i].word)) == 0) s = printed_plan(p, stage[i].what);
    coda_plan_free(p);
    ck_assert_msg(s, "%s: no stage is called \"%s\"", path, head);
    return s;
}

/* ---- Files ---- */

static char *read_file(const char *path)
{
    FILE *f = fopen(path, "r");
    ck_assert_msg(f, "%s cannot be opened: run the tests from the project's root", path);
    char *text = calloc(1, 1 << 20);
    size_t n = fread(text, 1, (1 << 20) - 1, f);
    ck_assert_uint_lt(n, (1 << 20) - 1);
    fclose(f);
    return text;
}

/* Where the next section line begins, or the end. */
static const char *next_section(const char *s)
{
    for (; *s; s = strchr(s, '\n') + 1)
        if (strncmp(s, "# >>> ", 6) == 0 || strncmp(s, "# <<<", 5) == 0) return s;
    return s;
}

/* The file as it should be: every section but the graph made anew. */
static void renew(const char *path, const char *old, struct text *new)
{
    const char *at = next_section(old);
    coda_graph *g = NULL;
    text_printf(new, "%.*s", (int)(at - old), old);
    while (strncmp(at, "# >>> ", 6) == 0) {
        char head[128] = "";
        const char *start = strchr(at, '\n') + 1, *end = next_section(start);
        snprintf(head, sizeof head, "%.*s", (int)(start - at - 7), at + 6);
        text_printf(new, "# >>> %s\n", head);
        if (strcmp(head, "graph") == 0) {
            char *input = strndup(start, (size_t)(end - start));
            text_append(new, input);
            g = parse(path, input);
            free(input);
        } else {
            ck_assert_msg(g, "%s: section \"%s\" before the graph", path, head);
            char *s = body(path, g, head);
            text_printf(new, "%s%s", s, *s && s[strlen(s) - 1] != '\n' ? "\n" : "");
            free(s);
        }
        at = end;
    }
    ck_assert_msg(strncmp(at, "# <<<", 5) == 0, "%s does not end in # <<<", path);
    text_append(new, "# <<<\n");
    coda_graph_free(g);
}

static void compare(const char *path, const char *old, const char *new)
{
    for (int line = 1; *old || *new; line++) {
        size_t a = strcspn(old, "\n"), b = strcspn(new, "\n");
        ck_assert_msg(a == b && strncmp(old, new, a) == 0,
                      "%s:%d\n  golden: %.*s\n  now:    %.*s\n  (if this is meant: make bless)", path, line,
                      (int)a, old, (int)b, new);
        old += a + (old[a] == '\n');
        new += b + (new[b] == '\n');
    }
}

static void write_file(const char *path, const char *text)
{
    FILE *f = fopen(path, "w");
    ck_assert_msg(f && fputs(text, f) >= 0 && fclose(f) == 0, "%s cannot be written", path);
}

START_TEST(golden)
{
    const char *path = file[_i];
    char *old = read_file(path);
    struct text new = {0};
    renew(path, old, &new);
    if (getenv("CODA_BLESS")) write_file(path, text_str(&new));
    else compare(path, old, text_str(&new));
    text_free(&new);
    free(old);
}
END_TEST

/* Printing what was parsed from a print changes nothing. */
START_TEST(text_is_a_fixed_point)
{
    char *text = read_file(file[_i]);
    char *start = strstr(text, "# >>> graph\n");
    ck_assert_msg(start, "%s has no graph", file[_i]);
    *(char *)next_section(start + 6) = 0;
    coda_graph *g = parse(file[_i], start);
    char *once = printed_graph(g);
    coda_graph *again = parse(file[_i], once);
    char *twice = printed_graph(again);
    ck_assert_str_eq(once, twice);
    coda_graph_free(g);
    coda_graph_free(again);
    free(text);
    free(once);
    free(twice);
}
END_TEST

START_TEST(there_are_goldens)
{
    ck_assert_msg(files > 10, "only %d files in " FOLDER ": run the tests from the project's root", files);
}
END_TEST

static int is_golden(const struct dirent *e)
{
    size_t n = strlen(e->d_name);
    return n > 5 && strcmp(e->d_name + n - 5, ".coda") == 0;
}

static void list_files(void)
{
    struct dirent **entry;
    int n = scandir(FOLDER, &entry, is_golden, alphasort);
    for (int i = 0; i < n; i++) {
        char path[512];
        snprintf(path, sizeof path, FOLDER "/%s", entry[i]->d_name);
        if (files < MOST_FILES) file[files++] = strdup(path);
        free(entry[i]);
    }
    if (n >= 0) free(entry);
}

TESTS(golden, list_files(), ONE(there_are_goldens), EACH(golden, files), EACH(text_is_a_fixed_point, files));
