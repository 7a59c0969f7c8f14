/*
 * test_attention_grad.c -- the gradients of attention: of the evaluator against difference quotients of a
 * loss, of the CPU device against the evaluator; what is refused, and NaN that stays where it is.
 */
#include "util_attention_grad.h"
#include "util_differences.h"
#include "util_run.h"
#include "util_scale.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "tests.h" /* last: Check has a macro named fail */

enum { QUOTIENTS = 300, RANDOM_RUNS = 300 };

static const char *words(const struct attention_grad_case *c)
{
    static char said[300];
    struct text t = {0};
    attention_grad_describe(c, &t);
    snprintf(said, sizeof said, "%s", text_str(&t));
    text_free(&t);
    return said;
}

static const struct node *named(const graph *g, const char *name, int *leaf)
{
    for (*leaf = 0; *leaf < g->leaves; ++*leaf)
        if (!strcmp(g->node[g->leaf[*leaf]].name, name)) return &g->node[g->leaf[*leaf]];
    return NULL;
}

static double *output_named(const graph *g, void **args, const char *name)
{
    for (int i = 0; i < g->outputs; i++)
        if (!strcmp(g->output[i].name, name)) return args[g->leaves + i];
    return NULL;
}

/* ---- Difference quotients ---- */

/* The derivative along the direction of what gradients, or o and lse, are of a leaf. */
static double along(const graph *g, void **args, double **direction)
{
    static const char *const pair[][2] = {{"q", "d0"},    {"k", "d1"},      {"v", "d2"}, {"sinks", "d3"},
                                          {"bias", "d4"}, {"slopes", "d5"}, {"do", "o"}, {"dlse", "l"}};
    double sum = 0;
    for (int i = 0; i < ARRAY_SIZE(pair); i++) {
        int leaf;
        const struct node *n = named(g, pair[i][0], &leaf);
        const double *gradient = output_named(g, args, pair[i][1]);
        for (int64_t e = 0; n && e < type_elements(&n->type); e++)
            if (direction[leaf][e] != 0) sum += direction[leaf][e] * gradient[e];
    }
    return sum;
}

/* What leaves lse at -inf has no part in the loss. */
static void hold_blind(const graph *g, void **args, double **direction)
{
    int leaf;
    const struct node *n = named(g, "dlse", &leaf);
    const double *lse = output_named(g, args, "l");
    for (int64_t e = 0; n && e < type_elements(&n->type); e++)
        if (lse[e] == -INFINITY) ((float *)args[leaf])[e] = 0, direction[leaf][e] = 0;
}

/* Leaves are small, so that the loss bends little between the steps of a quotient. */
static void shrink(const graph *g, void **args)
{
    for (int i = 0; i < g->leaves; i++) {
        const struct node *n = &g->node[g->leaf[i]];
        size_t floats = n->type.dtype == CODA_F32 ? random_arg_bytes(&n->type, n->stride) / 4 : 0;
        for (size_t e = 0; e < floats; e++) ((float *)args[i])[e] = rintf(((float *)args[i])[e] * 256) / 512;
    }
}

/* False: the loss bends so much that the quotient itself says less. */
static bool check_quotient(const struct attention_grad_case *c, uint64_t seed)
{
    graph *g = attention_grad_graph(c, true), *loss = attention_grad_loss(c);
    struct difference d;
    ck_assert_msg(g && loss, "%s: %s", words(c), coda_error());
    void **args = attention_grad_joint_args(c, g, seed, true), **at = random_args(loss, seed, true);
    double **direction = differences_direction(loss, seed);
    shrink(g, args);
    ck_assert_msg(coda_evaluate(g, args) == CODA_OK, "%s: %s", words(c), coda_error());
    hold_blind(g, args, direction);
    for (int i = 0; i < g->leaves; i++) {
        const struct node *n = &g->node[g->leaf[i]];
        memcpy(at[i], args[i], random_arg_bytes(&n->type, n->stride));
    }
    double want = along(g, args, direction);
    ck_assert_msg(difference_along(loss, at, direction, &d), "%s: %s", words(c), coda_error());
    double error = fabs(d.value - want) / (1 + fabs(want)), own = d.error / (1 + fabs(want));
    ck_assert_msg(error <= fmax(1e-7, own),
                  "seed %llu, %s: %.12g by quotients +- %.1e, but gradients say %.12g",
                  (unsigned long long)seed, words(c), d.value, d.error, want);
    differences_direction_free(loss, direction);
    random_args_free(loss, at);
    random_args_free(g, args);
    graph_free(loss);
    graph_free(g);
    return own <= 1e-7;
}

START_TEST(quotients_agree)
{
    uint64_t seed = random_seed();
    int n = scaled(QUOTIENTS), sharp = 0;
    for (uint64_t s = seed; s < seed + (uint64_t)n; s++) {
        struct attention_grad_case c = attention_grad_draw(s, CODA_F32);
        c.options &= ~GRAD_PADDED;
        sharp += check_quotient(&c, s);
    }
    ck_assert_msg(n < 50 || 10 * sharp >= 9 * n, "%d of %d quotients are good to 1e-7", sharp, n);
}
END_TEST

/* ---- The CPU device ---- */

static void check_run(const struct attention_grad_case *c, uint64_t seed, unsigned flags)
{
    coda_compile_options opt = CODA_COMPILE_OPTIONS_INIT;
    opt.device = CODA_DEVICE_CPU;
    opt.flags = flags;
    double error = attention_grad_error(c, seed, &opt);
    ck_assert_msg(error >= 0 && error <= 1, "seed %llu, %s: error %.2f %s", (unsigned long long)seed,
                  words(c), error, coda_error());
}

START_TEST(cases_run)
{
    if (!scale_takes_one_in(SANITIZED ? 6 : 2, _i)) return;
    check_run(&attention_grad_cases[_i], random_seed() + (uint64_t)_i, 0);
}
END_TEST

START_TEST(random_cases_run)
{
    static const coda_dtype dtype[] = {CODA_F32, CODA_BF16, CODA_F16};
    uint64_t seed = random_seed();
    int n = scaled(RANDOM_RUNS);
    for (uint64_t s = seed; s < seed + (uint64_t)n; s++) {
        struct attention_grad_case c = attention_grad_draw(s, dtype[s % 3]);
        check_run(&c, s, s % 4 ? 0 : CODA_NO_FUSION);
    }
}
END_TEST

/* A rounding of o moves a row's delta by its products with do, thus the gradients of slopes by that times how
 * far apart the keys are, for each row: where all rows cancel, that much stays. */
static double slopes_error(const struct attention_grad_case *c, const graph *g, int output, const void *got,
                           const double *want)
{
    const struct type *t = &g->node[g->output[output].value].type;
    double unit = c->dtype == CODA_F16 ? 0x1p-11 : 0x1p-8, worst = 0;
    double rows = sqrt((double)c->batch * (double)c->tq), noise = unit / 8 * sqrt((double)c->head_dim);
    for (int64_t e = 0; e < type_elements(t); e++)
        worst = fmax(worst, fabs(dtype_load(t->dtype, got, e) - want[e]) / (1 + fabs(want[e]) / 4));
    return worst / (noise * rows * (double)c->tk / 2);
}

/* Over what is allowed; -1 with the message set. */
static double joint_error(const struct attention_grad_case *c, const graph *g, uint64_t seed)
{
    coda_compile_options opt = CODA_COMPILE_OPTIONS_INIT;
    struct run_buffers b = {0};
    coda_plan *p;
    opt.device = CODA_DEVICE_CPU;
    if (coda_compile(&p, g, &opt) != CODA_OK) return -1;
    void **want = run_reference(g, seed), **got = random_args(g, seed, false);
    bool good = want && run_upload(&b, g, p, got, false) && run_prepare(&b, p) && run_plan(&b, p);
    double worst = good ? 0 : -1, most = c->dtype == CODA_F32 ? 1e-4 : 3e-2;
    for (int i = 0; good && i < g->outputs; i++) {
        const void *y = got[g->leaves + i];
        bool slopes = c->dtype != CODA_F32 && !strcmp(g->output[i].name, "d5");
        double e = slopes ? slopes_error(c, g, i, y, want[g->leaves + i])
                          : run_error(g, i, y, want[g->leaves + i]) / most;
        if (e > 1 && !slopes && c->dtype != CODA_F32) /* nearly equal scores, say */
            e *= most / fmax(most, 2 * run_sensitivity(g, seed, want));
        worst = e <= worst ? worst : e;
    }
    run_release(&b);
    if (want) random_args_free(g, want);
    random_args_free(g, got);
    coda_plan_free(p);
    return worst;
}

/* Attention beside its gradients, which read o as it was rounded. */
START_TEST(joint_graphs_run)
{
    for (int i = 0; i < attention_grad_case_count; i += 3) {
        const struct attention_grad_case *c = &attention_grad_cases[i];
        if (!scale_takes_one_in(SANITIZED ? 3 : 1, i / 3)) continue;
        graph *g = attention_grad_graph(c, true);
        double error = joint_error(c, g, random_seed());
        ck_assert_msg(error >= 0 && error <= 1, "%s: error %.2f of what is allowed %s", words(c), error,
                      coda_error());
        graph_free(g);
    }
}
END_TEST

/* Results of one call are one launch beside that of their deltas, as attention and its sums are one: without
 * fusion by their origin. */
START_TEST(results_are_two_launches)
{
    coda_compile_options opt = CODA_COMPILE_OPTIONS_INIT;
    opt.device = CODA_DEVICE_CPU;
    for (int i = 0; i < attention_grad_case_count; i++)
        for (int unfused = 0; unfused < 2; unfused++) {
            const struct attention_grad_case *c = &attention_grad_cases[i];
            graph *g = attention_grad_graph(c, true);
            coda_plan_stats stats = CODA_PLAN_STATS_INIT;
            coda_plan *p;
            opt.flags = unfused ? CODA_NO_FUSION : 0;
            ck_assert_msg(coda_compile(&p, g, &opt) == CODA_OK, "%s: %s", words(c), coda_error());
            ck_assert_int_eq(coda_plan_stats_get(p, &stats), CODA_OK);
            ck_assert_msg(stats.launches == 3, "%s: %d launches", words(c), stats.launches);
            coda_plan_free(p);
            graph_free(g);
        }
}
END_TEST

/* Two products of the forward pass, and five of the gradients, of all pairs. */
START_TEST(work_is_seven_products)
{
    static const struct attention_grad_case c = {.name = "work",
                                                 .dtype = CODA_F32,
                                                 .batch = 2,
                                                 .tq = 10,
                                                 .tk = 12,
                                                 .heads = 4,
                                                 .kv_heads = 2,
                                                 .head_dim = 8};
    coda_compile_options opt = CODA_COMPILE_OPTIONS_INIT;
    coda_plan_stats stats = CODA_PLAN_STATS_INIT;
    coda_plan *p;
    opt.device = CODA_DEVICE_CPU;
    graph *g = attention_grad_graph(&c, true);
    ck_assert_int_eq(coda_compile(&p, g, &opt), CODA_OK);
    ck_assert_int_eq(coda_plan_stats_get(p, &stats), CODA_OK);
    ck_assert(stats.flops == 2.0 * (2 + 5) * 2 * 10 * 12 * 4 * 8);
    coda_plan_free(p);
    graph_free(g);
}
END_TEST

/* ---- By hand ---- */

/* Of values 0 and 4, of equal weight, and do = 1: o = 2, so that the scores' derivatives are -1 and 1. */
START_TEST(two_keys_by_hand)
{
    static const char text[] =
        "%q = input f32 [1,1]\n%k = input f32 [2,1]\n%v = input f32 [2,1]\n"
        "%do = input f32 [1,1]\n%b = input f32 [2]\n"
        "%o = attention %q, %k, %v, _, _, _, _, _, _, _, _, %b {scale=2}\n"
        "%l = attention %q, %k, %v, _, _, _, _, _, _, _, _, %b {scale=2, lse=1} @%o\n"
        "%dq = attention_grad %q, %k, %v, %o, %l, %do, _, _, _, _, _, _, %b {scale=2}\n"
        "%dk = attention_grad %q, %k, %v, %o, %l, %do, _, _, _, _, _, _, %b {scale=2, of=1}\n"
        "%dv = attention_grad %q, %k, %v, %o, %l, %do, _, _, _, _, _, _, %b {scale=2, of=2}\n"
        "%db = attention_grad %q, %k, %v, %o, %l, %do, _, _, _, _, _, _, %b {scale=2, of=4}\n"
        "output %q1 = %dq\noutput %k1 = %dk\noutput %v1 = %dv\noutput %b1 = %db\n";
    _Alignas(16) float q[1] = {1}, k[2] = {3, 1}, v[2] = {0, 4}, d_o[1] = {1}, b[2] = {-6, -2};
    double dq[1], dk[2], dv[2], db[2];
    coda_graph *g;
    ck_assert_msg(coda_graph_parse(&g, text) == CODA_OK, "%s", coda_error());
    ck_assert_int_eq(coda_evaluate(g, (void *[]){q, k, v, d_o, b, dq, dk, dv, db}), CODA_OK);
    ck_assert(fabs(dv[0] - 0.5) < 1e-12 && fabs(dv[1] - 0.5) < 1e-12);
    ck_assert(fabs(db[0] + 1) < 1e-12 && fabs(db[1] - 1) < 1e-12);
    ck_assert(fabs(dk[0] + 2) < 1e-12 && fabs(dk[1] - 2) < 1e-12); /* scale q = 2 */
    ck_assert(fabs(dq[0] + 4) < 1e-12);                            /* 2 (-3 + 1) */
    coda_graph_free(g);
}
END_TEST

/* ---- NaN, threads ---- */

enum { TIME = 40, WIDTH = 8, BAD = 17 };

static void run_causal(const char *align, float *const *in, float *const *out, double *const *evaluated)
{
    struct text t = {0};
    coda_compile_options opt = CODA_COMPILE_OPTIONS_INIT;
    coda_graph *g;
    coda_plan *p;
    opt.device = CODA_DEVICE_CPU;
    for (int i = 0; i < 4; i++)
        text_printf(&t, "%%%s = input f32 [40,8]\n", (const char *[]){"q", "k", "v", "do"}[i]);
    text_printf(&t, "%%o = attention %%q, %%k, %%v {causal=1%s}\n", align);
    text_printf(&t, "%%l = attention %%q, %%k, %%v {causal=1, lse=1%s} @%%o\n", align);
    for (int i = 0; i < 3; i++)
        text_printf(&t,
                    "%%d%d = attention_grad %%q, %%k, %%v, %%o, %%l, %%do {causal=1, of=%d%s}\noutput %%d%d "
                    "= %%d%d\n",
                    i, i, align, i, i);
    ck_assert_msg(coda_graph_parse(&g, text_str(&t)) == CODA_OK, "%s", coda_error());
    ck_assert_int_eq(coda_compile(&p, g, &opt), CODA_OK);
    void *workspace = aligned_alloc(256, (coda_plan_workspace(p) / 256 + 1) * 256);
    memset(workspace, 0xff, coda_plan_workspace(p));
    void *args[] = {in[0], in[1], in[2], in[3], out[0], out[1], out[2]};
    ck_assert_msg(coda_run(p, args, NULL, workspace, NULL) == CODA_OK, "%s", coda_error());
    for (int i = 0; i < 3; i++) args[4 + i] = evaluated[i];
    ck_assert_int_eq(coda_evaluate(g, args), CODA_OK);
    free(workspace);
    coda_plan_free(p);
    coda_graph_free(g);
    text_free(&t);
}

/* NaN in a row of do is in that row of dq, and in dk and dv of the keys that it sees. */
START_TEST(nan_stays_with_who_sees_it)
{
    static _Alignas(64) float in[4][TIME * WIDTH], out[3][TIME * WIDTH];
    static double evaluated[3][TIME * WIDTH];
    struct random r = {random_seed()};
    for (int i = 0; i < 4; i++)
        for (int e = 0; e < TIME * WIDTH; e++) in[i][e] = (float)random_normal(&r);
    in[3][BAD * WIDTH + 3] = NAN;
    run_causal("", (float *[]){in[0], in[1], in[2], in[3]}, (float *[]){out[0], out[1], out[2]},
               (double *[]){evaluated[0], evaluated[1], evaluated[2]});
    for (int i = 0; i < 3; i++)
        for (int e = 0; e < TIME * WIDTH; e++) {
            int row = e / WIDTH, column = e % WIDTH;
            bool bad = i == 0 ? row == BAD : i == 1 ? row <= BAD : row <= BAD && column == 3;
            ck_assert_msg(isnan(out[i][e]) == bad && isnan(evaluated[i][e]) == bad, "%d, row %d: %g and %g",
                          i, row, (double)out[i][e], evaluated[i][e]);
        }
}
END_TEST

/* Threads share out items, and bits do not tell. */
START_TEST(bits_do_not_depend_on_threads)
{
    for (int i = 0; i < attention_grad_case_count; i += 5) {
        const struct attention_grad_case *c = &attention_grad_cases[i];
        if (!scale_takes_one_in(SANITIZED ? 3 : 1, i / 5)) continue;
        graph *g = attention_grad_graph(c, true);
        coda_compile_options opt = CODA_COMPILE_OPTIONS_INIT;
        uint64_t seed = random_seed();
        void **args[2];
        coda_plan *p;
        opt.device = CODA_DEVICE_CPU;
        ck_assert_int_eq(coda_compile(&p, g, &opt), CODA_OK);
        for (int one = 0; one < 2; one++) {
            int before = parallel_limit(one ? 1 : 4);
            struct run_buffers b;
            args[one] = random_args(g, seed, false);
            ck_assert(run_upload(&b, g, p, args[one], false) && run_plan(&b, p));
            run_release(&b);
            parallel_limit(before);
        }
        for (int o = 0; o < g->outputs; o++) {
            const struct type *t = &g->node[g->output[o].value].type;
            size_t bytes = (size_t)dtype_bytes(t->dtype, type_elements(t));
            ck_assert_msg(!memcmp(args[0][g->leaves + o], args[1][g->leaves + o], bytes), "%s: output %d",
                          words(c), o);
        }
        for (int one = 0; one < 2; one++) random_args_free(g, args[one]);
        coda_plan_free(p);
        graph_free(g);
    }
}
END_TEST

/* ---- Bad input ---- */

#define OPERANDS                                                                                             \
    "%q = input f32 [2,4,8]\n%k = input f32 [2,6,8]\n%v = input f32 [2,6,8]\n%o = input f32 [2,4,8]\n"       \
    "%l = input f32 [2,2,4]\n%do = input f32 [2,4,8]\n"

static const struct {
    const char *text, *error;
} refused[] = {
    {OPERANDS "%x = attention_grad %q, %k, %v, %o, %l, %o {heads=2, of=6}\n", "of is 6; must be 0..5"},
    {OPERANDS "%x = attention_grad %q, %k, %v, %o, %l, %do {heads=2, of=3}\n",
     "of is 3, but there is no operand sinks"},
    {OPERANDS "%x = attention_grad %q, %k, %v, %o, %l, %do {heads=2, of=4}\n",
     "of is 4, but there is no operand bias"},
    {OPERANDS "%x = attention_grad %q, %k, %v, %o, %l, %do {heads=2, of=5}\n",
     "of is 5, but there is no operand slopes"},
    {OPERANDS "%x = attention_grad %q, %k, %v, %k, %l, %do {heads=2}\n",
     "o is f32[2,6,8]; must be f32[2,4,8]"},
    {OPERANDS "%x = attention_grad %q, %k, %v, %o, %l, %k {heads=2}\n",
     "do is f32[2,6,8]; must be f32[2,4,8]"},
    {OPERANDS "%h = cast %do {to=bf16}\n%x = attention_grad %q, %k, %v, %o, %l, %h {heads=2}\n",
     "do is bf16[2,4,8]; must be f32[2,4,8]"},
    {OPERANDS "%x = attention_grad %q, %k, %v, %o, %l, %do {heads=4}\n",
     "lse is f32[2,2,4]; must be f32[2,4,4]"},
    {OPERANDS "%x = attention_grad %q, %k, %v, %o, %l, %do, %do {heads=2}\n",
     "dlse is f32[2,4,8]; must be f32[2,2,4]"},
    {OPERANDS "%x = attention_grad %q, %k, %o, %o, %l, %do {heads=2}\n", "k is [2,6,8] but v is [2,4,8]"},
    {OPERANDS "%x = attention_grad %q, %k, %v, %o, %l, %do {heads=3}\n", "3 heads must divide its columns"},
    {OPERANDS "%s = input f32 [3]\n%x = attention_grad %q, %k, %v, %o, %l, %do, _, _, _, _, %s {heads=2}\n",
     "sinks are f32[3]; must be f32[2]"},
    {OPERANDS "%x = attention_grad %q, %k, %v, %o, %l, %do {heads=2, window=-1}\n", "window is -1"},
    {OPERANDS "%x = attention_grad %q, %k, %v, %o, %l {heads=2}\n", "attention_grad"},
    {"%q = input f32 [2,4,8]\n%k = input f8e4m3 [2,6,8]\n%l = input f32 [2,2,4]\n"
     "%x = attention_grad %q, %k, %k, %q, %l, %q {heads=2}\n",
     "operand 1 is f8e4m3[2,6,8]"},
    {"map odd(1; 0) \"DEV static float apply(float s) { return s + 1.0f; }\"\n" OPERANDS
     "%x = attention_grad %q, %k, %v, %o, %l, %do {heads=2, score=odd}\n",
     "the map of scores odd declares no derivative by its first operand"},
};

START_TEST(mistakes_are_named)
{
    coda_graph *g;
    coda_status s = coda_graph_parse(&g, refused[_i].text);
    ck_assert_msg(s == CODA_E_INVALID || s == CODA_E_UNSUPPORTED, "%d of %s", s, refused[_i].text);
    ck_assert_msg(strstr(coda_error(), refused[_i].error) && strstr(coda_error(), "attention_grad") &&
                      !strchr(coda_error(), '\n'),
                  "%s", coda_error());
}
END_TEST

/* Extents are filled in when a plan runs. */
START_TEST(extents_may_be_symbols)
{
    static const char text[] =
        "dim %B = 1..4\ndim %T = 1..64\n%q = input f32 [B,T,16]\n%k = input f32 [B,T,8]\n"
        "%v = input f32 [B,T,8]\n%do = input f32 [B,T,16]\n"
        "%o = attention %q, %k, %v {heads=4, kv_heads=2, causal=1}\n"
        "%l = attention %q, %k, %v {heads=4, kv_heads=2, causal=1, lse=1} @%o\n"
        "%dq = attention_grad %q, %k, %v, %o, %l, %do {heads=4, kv_heads=2, causal=1}\n"
        "%dk = attention_grad %q, %k, %v, %o, %l, %do {heads=4, kv_heads=2, causal=1, of=1} @%dq\n"
        "%dv = attention_grad %q, %k, %v, %o, %l, %do {heads=4, kv_heads=2, causal=1, of=2} @%dq\n"
        "output %y = %dq\noutput %z = %dk\noutput %w = %dv\n";
    coda_compile_options opt = CODA_COMPILE_OPTIONS_INIT;
    coda_graph *g;
    coda_plan *p;
    opt.device = CODA_DEVICE_CPU;
    ck_assert_msg(coda_graph_parse(&g, text) == CODA_OK, "%s", coda_error());
    ck_assert_msg(coda_compile(&p, g, &opt) == CODA_OK, "%s", coda_error());
    for (int64_t time = 1; time < 64; time += 20) {
        int64_t dims[] = {3, time};
        graph *bound = graph_bind(g, "test", dims);
        void **want = run_reference(bound, 7), **got = random_args(bound, 7, false);
        struct run_buffers b;
        ck_assert(run_upload(&b, bound, p, got, false));
        b.dims = dims;
        ck_assert_msg(run_plan(&b, p), "%s", coda_error());
        ck_assert(run_worst_error(bound, got, want) < 1e-5);
        run_release(&b);
        random_args_free(bound, want);
        random_args_free(bound, got);
        graph_free(bound);
    }
    coda_plan_free(p);
    coda_graph_free(g);
}
END_TEST

TESTS(attention_grad, ONE(quotients_agree), ONE(random_cases_run), SOME(cases_run, attention_grad_case_count),
      ONE(joint_graphs_run), ONE(results_are_two_launches), ONE(work_is_seven_products),
      ONE(two_keys_by_hand), ONE(nan_stays_with_who_sees_it), ONE(bits_do_not_depend_on_threads),
      EACH(mistakes_are_named, ARRAY_SIZE(refused)), ONE(extents_may_be_symbols));
