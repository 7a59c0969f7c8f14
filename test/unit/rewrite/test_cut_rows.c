/*
 * test_cut_rows.c -- rows that nobody reads: where the rule fires and where it must not, and that what is
 * left computes the same in fp64, of graphs that are drawn, too.
 */
#include "check_rules.h" /* before check.h, which has a macro called fail */

#include "eval.h"
#include "util_random.h"
#include "util_scale.h"

#include "tests.h" /* last: Check has a macro named fail */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define LEAVES                                                                                               \
    "%x = input f32[2,6,16]\n%g = weight f32[16]\n%w = weight f32[16,16]\n%b = weight f32[2,16,16]\n"        \
    "%s = input f32[2,1,16]\n"
#define NORMED                                                                                               \
    "%a = attention %x, %x, %x {heads=2, kv_heads=2}\n%p = matmul %a, %w\n%h = add %p, %x\n"                 \
    "%n = rms_norm %h, %g {eps=1e-5}\n%q = matmul %n, %w\n%t = silu %q\n%y = add %t, %h\n"

static const struct {
    const char *text;
    bool fires;
} cases[] = {
    {NORMED "%r = slice %y {axis=1, start=5, stop=6, step=1}\noutput %r = %r\n", true},
    {NORMED "%r = slice %y {axis=0, start=1, stop=2, step=1}\noutput %r = %r\n", true},
    {NORMED "%z = mul %y, %s\n%r = slice %z {axis=1, start=1, stop=2, step=1}\noutput %r = %r\n", true},
    {NORMED "%r = slice %y {axis=1, start=5, stop=6, step=1}\n%u = slice %y {axis=1, start=5, stop=6, "
            "step=1}\n%v = mul %r, %u\noutput %v = %v\n",
     true},
    {NORMED "%z = slice %y {axis=2, start=8, stop=16, step=1}\n%r = slice %z {axis=1, start=5, stop=6, "
            "step=1}\noutput %r = %r\n",
     true},
    {NORMED "%z = slice %y {axis=0, start=0, stop=1, step=1}\n%f = reshape %z {rank=2, d0=6, d1=16}\n"
            "%r = slice %f {axis=0, start=5, stop=6, step=1}\noutput %r = %r\n",
     true},
    /* all rows of one value on the way are read: what is behind it is cut */
    {NORMED "%z = matmul %y, %w\n%r = slice %z {axis=1, start=5, stop=6, step=1}\noutput %r = %r\n"
            "output %y = %y\n",
     true},
    /* all of it is read; several rows; two of them, one by one; rows that a reshape regroups; columns;
     * statistics over rows; batches of weights; nothing to save */
    {NORMED "%r = slice %y {axis=1, start=5, stop=6, step=1}\noutput %r = %r\noutput %y = %y\n", false},
    {NORMED "%r = slice %y {axis=1, start=1, stop=3, step=1}\noutput %r = %r\n", false},
    {NORMED "%r = slice %y {axis=1, start=5, stop=6, step=1}\n%u = slice %y {axis=1, start=0, stop=1, "
            "step=1}\noutput %r = %r\noutput %u = %u\n",
     false},
    {NORMED "%f = reshape %y {rank=2, d0=12, d1=16}\n%r = slice %f {axis=0, start=5, stop=6, step=1}\n"
            "output %r = %r\n",
     false},
    {NORMED "%r = slice %y {axis=2, start=5, stop=6, step=1}\noutput %r = %r\n", false},
    {"%p = matmul %x, %w\n%m = sum %p {columns=1}\n%c = sub %p, %m\n%r = slice %p {axis=1, start=5, stop=6, "
     "step=1}\noutput %r = %r\noutput %c = %c\n",
     false},
    {"%p = matmul %x, %b\n%r = slice %p {axis=0, start=1, stop=2, step=1}\noutput %r = %r\n", false},
    {"%p = silu %x\n%r = slice %p {axis=1, start=5, stop=6, step=1}\noutput %r = %r\n", false}};

static graph *rewritten(const graph *g, struct rewrite_log *log)
{
    graph *r = rewrite(g, &FOLD(NONE), log);
    ck_assert_msg(r != NULL, "%s", coda_error());
    return r;
}

static int64_t elements(const struct type *t)
{
    int64_t n = 1;
    for (int i = 0; i < t->rank; i++) n *= t->dim[i];
    return n;
}

/* Both in fp64. */
static void expect_same(const graph *g, const graph *r, uint64_t seed, double most, const char *text)
{
    void **want = random_args(g, seed, true), **got = random_args(r, seed, true);
    void **same =
        malloc(sizeof *same * (size_t)(g->leaves + g->outputs)); /* leaves of one, results of the other */
    memcpy(same, want, sizeof *same * (size_t)g->leaves);
    memcpy(same + g->leaves, got + g->leaves, sizeof *same * (size_t)g->outputs);
    ck_assert_int_eq(graph_evaluate(g, want), CODA_OK);
    ck_assert_int_eq(graph_evaluate(r, same), CODA_OK);
    free(same);
    for (int o = 0; o < g->outputs; o++) {
        const double *a = want[g->leaves + o], *b = got[g->leaves + o];
        double size = 0, off = 0;
        for (int64_t i = 0; i < elements(&g->node[g->output[o].value].type); i++) {
            size = MAX(size, a[i] < 0 ? -a[i] : a[i]);
            off = MAX(off, a[i] < b[i] ? b[i] - a[i] : a[i] - b[i]);
        }
        ck_assert_msg(off <= most * size, "output %d is off by %g of %g:\n%s", o, off, size, text);
    }
    random_args_free(g, want);
    random_args_free(r, got);
}

START_TEST(cuts_what_nobody_reads)
{
    for (int i = 0; i < ARRAY_SIZE(cases); i++) {
        char text[2048];
        snprintf(text, sizeof text, "%s%s", LEAVES, cases[i].text);
        struct rewrite_log log = {0};
        graph *g = graph_parse(text);
        ck_assert_msg(g != NULL, "%s\n%s", coda_error(), text);
        graph *r = rewritten(g, &log);
        ck_assert_msg((rules_fired(&log, "cut_rows") > 0) == cases[i].fires, "fires or not on\n%s", text);
        expect_same(g, r, 7, 1e-12, text);
        graph_free(g);
        graph_free(r);
        rewrite_log_free(&log);
    }
}
END_TEST

/* No row of the layer is computed but the last one, behind the attention. */
START_TEST(leaves_no_other_rows)
{
    char text[2048];
    snprintf(text, sizeof text, "%s%s", LEAVES, cases[0].text);
    struct rewrite_log log = {0};
    graph *g = graph_parse(text), *r = rewritten(g, &log);
    for (int v = 0; v < r->nodes; v++) {
        const struct node *n = &r->node[v];
        if (op_is_product(n->op)) ck_assert_int_eq(n->type.dim[1], 1);
    }
    graph_free(g);
    graph_free(r);
    rewrite_log_free(&log);
}
END_TEST

/* One of as many as a symbol says. */
START_TEST(cuts_rows_of_symbols)
{
    static const char *const last[] = {"start=T-1, stop=T", "start=0, stop=T-1"};
    for (int i = 0; i < 2; i++) {
        char text[1024];
        snprintf(text, sizeof text,
                 "dim %%T = 1..512\n%%x = input f32[T,16]\n%%w = weight f32[16,16]\n%%p = matmul %%x, %%w\n"
                 "%%t = silu %%p\n%%r = slice %%t {axis=0, %s, step=1}\noutput %%r = %%r\n",
                 last[i]);
        rules_expect(text, FOLD(NONE), i ? "-cut_rows" : "cut_rows", NULL);
    }
}
END_TEST

/* ---- Graphs that are drawn ---- */

enum { VALUES = 14 };

/* One more value of [2,6,16] by those before it. */
static void draw_value(struct random *r, struct text *t, int n)
{
    static const char *const form[] = {
        "%%v%d = silu %%v%d\n",       "%%v%d = matmul %%v%d, %%w%d\n",       "%%v%d = add %%v%d, %%v%d\n",
        "%%v%d = mul %%v%d, %%v%d\n", "%%v%d = rms_norm %%v%d {eps=1e-5}\n", "%%v%d = matmul %%v%d, %%w%d\n"};
    int of = n - 1 - (int)random_below(r, MIN(n, 3)), kind = (int)random_below(r, ARRAY_SIZE(form));
    int other = strstr(form[kind], "%%w") ? (int)random_below(r, 2) : (int)random_below(r, n);
    text_printf(t, form[kind], n, of, other);
}

static void draw(struct random *r, struct text *t)
{
    text_printf(t, "%%v0 = input f32[2,6,16]\n%%w0 = weight f32[16,16]\n%%w1 = weight f32[16,16]\n");
    for (int n = 1; n < VALUES; n++) draw_value(r, t, n);
    for (int i = 0, many = 1 + (int)random_below(r, 2); i < many; i++) {
        int at = (int)random_below(r, 6), axis = 1, of = VALUES - 1 - (int)random_below(r, 3);
        if (random_chance(r, 25)) at = (int)random_below(r, 2), axis = 0;
        text_printf(t, "%%r%d = slice %%v%d {axis=%d, start=%d, stop=%d, step=1}\noutput %%r%d = %%r%d\n", i,
                    of, axis, at, at + 1, i, i);
    }
    if (random_chance(r, 25))
        text_printf(t, "output %%whole = %%v%d\n", (int)random_below(r, VALUES - 1) + 1);
}

START_TEST(computes_the_same)
{
    uint64_t seed = random_seed();
    int fired = 0, graphs = scaled(200);
    for (int i = 0; i < graphs; i++, seed++) {
        struct random r = {seed};
        struct text t = {0};
        struct rewrite_log log = {0};
        draw(&r, &t);
        graph *g = graph_parse(text_str(&t));
        ck_assert_msg(g != NULL, "%s\n%s", coda_error(), text_str(&t));
        graph *after = rewritten(g, &log);
        expect_same(g, after, seed, 1e-12, text_str(&t));
        fired += rules_fired(&log, "cut_rows") > 0;
        graph_free(g);
        graph_free(after);
        rewrite_log_free(&log);
        text_free(&t);
    }
    ck_assert_msg(graphs < 100 || 2 * fired > graphs, "fired in %d of %d graphs", fired, graphs);
}
END_TEST

TESTS(cut_rows, ONE(cuts_what_nobody_reads), ONE(leaves_no_other_rows), ONE(cuts_rows_of_symbols),
      ONE(computes_the_same));
