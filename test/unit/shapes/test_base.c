/* test_base.c -- kernels that serve any shape: each finds its own among those that coda_compile makes. */
#include "family.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "tests.h" /* last: Check has a macro named fail */

enum { MOST_TEXTS = 64, ROOM = 1 << 14 };

static const struct {
    const char *file, *was, *is, *dim; /* in the text, for symbols; NULL: it has them */
    int least, most;                   /* of the symbol */
    int kernels;                       /* of the base, those for a single row among them */
} subject[] = {
    {"llama", "[2048,4096]", "[T,4096]", "dim %T = 1..4096\n", 1, 4096, 13},
    {"gpt2", "[1024,768]", "[T,768]", "dim %T = 1..2048\n", 1, 2048, 14},
    {"bert", "[16,512,768]", "[16,T,768]", "dim %T = 1..512\n", 1, 512, 9},
    {"llama_cache", NULL, NULL, NULL, 1, 64, 12},
    {"qwen3_cache", NULL, NULL, NULL, 1, 64, 12},
};

static graph *graph_of(int i)
{
    char path[64], text[ROOM], with[ROOM + 64];
    coda_graph *g;
    snprintf(path, sizeof path, "examples/graphs/%s.coda", subject[i].file);
    FILE *f = fopen(path, "r");
    ck_assert_msg(f, "%s", path);
    text[fread(text, 1, sizeof text - 1, f)] = 0;
    fclose(f);
    snprintf(with, sizeof with, "%s", text);
    char *at = subject[i].was ? strstr(text, subject[i].was) : NULL;
    ck_assert(!subject[i].was || at);
    if (at)
        snprintf(with, sizeof with, "%s%.*s%s%s", subject[i].dim, (int)(at - text), text, subject[i].is,
                 at + strlen(subject[i].was));
    ck_assert_msg(coda_graph_parse(&g, with) == CODA_OK, "%s: %s", path, coda_error());
    return g;
}

struct texts {
    const char *text[MOST_TEXTS];
    int n;
};

static bool has(const struct texts *t, const char *text)
{
    for (int i = 0; i < t->n; i++)
        if (!strcmp(t->text[i], text)) return true;
    return false;
}

static void take(struct texts *t, const coda_plan *p)
{
    for (int i = 0; i < p->kernels; i++) {
        if (has(t, p->kernel[i].info.source)) continue;
        ck_assert_int_lt(t->n, MOST_TEXTS);
        t->text[t->n++] = p->kernel[i].info.source;
    }
}

static void expect_base(struct family *f, const coda_plan *whole, const struct texts *base,
                        const int64_t *dims)
{
    const struct plan_request w = {.call = "test", .dims = dims, .base = true, .dry_run = true};
    coda_plan *p;
    char shape[100];
    family_say(f, dims, shape, sizeof shape);
    ck_assert_msg(family_plan(f, &p, whole, &w) == CODA_OK, "%s: %s", shape, coda_error());
    for (int i = 0; i < p->kernels; i++)
        ck_assert_msg(has(base, p->kernel[i].info.source), "%s wants %s", shape, p->kernel[i].info.source);
    executable_free(p);
}

START_TEST(all_shapes_have_a_base)
{
    struct family f;
    struct texts base = {.n = 0};
    coda_compile_options opt = CODA_COMPILE_OPTIONS_INIT;
    coda_plan *whole;
    graph *g = graph_of(_i);
    opt.device = CODA_DEVICE_NONE;
    opt.flags = CODA_PLAN_ONLY;
    ck_assert_msg(family_open(&f, g, &opt) == CODA_OK, "%s", coda_error());
    ck_assert_msg(family_whole(&f, &whole, true) == CODA_OK, "%s", coda_error());
    take(&base, whole);
    for (int i = 0; i < f.extremes / 2; i++) take(&base, f.extreme[i]); /* the others are of the best */
    for (int i = 0; i < f.probes; i++) take(&base, f.probe[i]);
    int64_t dims[MOST_SYMBOLS] = {0};
    ck_assert_int_eq(g->dims->symbols, 1);
    for (int v = subject[_i].least; v <= subject[_i].most; v += v < 270 ? 1 : 13)
        dims[0] = v, expect_base(&f, whole, &base, dims);
    printf("%s: %d kernels serve any shape\n", subject[_i].file, base.n);
    ck_assert_int_le(base.n, subject[_i].kernels);
    executable_free(whole);
    family_close(&f);
    graph_free(g);
}
END_TEST

TESTS(base, EACH(all_shapes_have_a_base, ARRAY_SIZE(subject)));
