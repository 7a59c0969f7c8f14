/* test_plan.c -- random graphs, compiled for the CPU device in every mode, against fp64: what the plan
 * computes is what the graph says. */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "util_random.h"

#include <check.h>

static double error_of(const struct type *t, const struct output *o, const void *got, const double *want)
{
    double diff = 0, norm = 0;
    int64_t n = type_elements(t);
    for (int64_t i = 0; i < n; i++) {
        int64_t at = 0, rest = i;
        for (int d = t->rank - 1; d >= 0; rest /= t->dim[d--]) at += rest % t->dim[d] * o->stride[d];
        double x = dtype_load(t->dtype, got, at), y = want[i];
        if (isnan(x) && isnan(y)) continue;
        if (!isfinite(x) && x == y) continue;
        if (!isfinite(x) || !isfinite(y)) return INFINITY;
        diff += (x - y) * (x - y);
        norm += y * y;
    }
    return sqrt(diff) / (sqrt(norm) + 0.1 * sqrt((double)n) + 1e-30); /* values are of order 1 */
}

/* The largest error of any output of one compiled run; -1 if the plan could not be made. */
static double run_error(const graph *g, uint64_t seed, const coda_compile_options *opt, void **want)
{
    coda_plan *p;
    double worst = 0;
    void **args = random_args(g, seed, false);
    if (coda_compile(&p, g, opt) != CODA_OK) {
        random_args_free(g, args);
        return -1;
    }
    void *prepared = aligned_alloc(256, coda_plan_prepared(p) + 256), *work = aligned_alloc(256, coda_plan_workspace(p) + 256);
    memset(work, 0xff, coda_plan_workspace(p));
    memset(prepared, 0xff, coda_plan_prepared(p));
    int leaves = coda_graph_args(g) - g->outputs;
    bool ok = coda_prepare(p, args, prepared, work, NULL) == CODA_OK && coda_run(p, args, prepared, work, NULL) == CODA_OK;
    for (int i = 0; ok && i < g->outputs; i++) {
        const struct output *o = &g->output[i];
        worst = fmax(worst, error_of(&g->node[o->value].type, o, args[leaves + i], want[leaves + i]));
    }
    free(prepared);
    free(work);
    random_args_free(g, args);
    coda_plan_free(p);
    return ok ? worst : -1;
}

static void report(const graph *g, const coda_compile_options *opt)
{
    coda_plan *p;
    struct text t = {0};
    graph_print(g, &t);
    fprintf(stderr, "%s\n", text_str(&t));
    text_free(&t);
    struct coda_compile_options only = *opt;
    only.flags |= CODA_PLAN_ONLY;
    if (coda_compile(&p, g, &only) != CODA_OK) return;
    int64_t n = coda_plan_print(p, CODA_TEXT_PLAN, NULL, 0);
    char *s = malloc((size_t)n + 1);
    coda_plan_print(p, CODA_TEXT_PLAN, s, (size_t)n + 1);
    fprintf(stderr, "%s\n", s);
    free(s);
    coda_plan_free(p);
}

/* Less its mean or its largest, a row of few columns is all rounding: 16 bits can say nothing of it. */
static bool is_ill_conditioned(const graph *g)
{
    for (int i = 0; i < g->nodes; i++) {
        const struct node *n = &g->node[i];
        bool centres = n->op == OP_LAYER_NORM || n->op == OP_REDUCE;
        if (centres && type_columns(&g->node[n->in[0]].type) < 4) return true;
    }
    return false;
}

static void check_graph(uint64_t seed, const struct random_options *ro, double tolerance)
{
    static const struct { const char *name; unsigned flags; coda_fold fold; } mode[] = {
        {"unfused", CODA_NO_FUSION, CODA_FOLD_NONE},
        {"fused", 0, CODA_FOLD_NONE},
        {"folded", 0, CODA_FOLD_COPY},
        {"folded in place", 0, CODA_FOLD_IN_PLACE},
    };
    graph *g = random_graph(seed, ro);
    if (ro->dtype != CODA_F32 && is_ill_conditioned(g)) {
        graph_free(g);
        return;
    }
    void **want = random_args(g, seed, true);
    double base = 0;
    ck_assert_msg(coda_evaluate(g, want) == CODA_OK, "%s", coda_error());
    for (int m = 0; m < ARRAY_SIZE(mode); m++) {
        coda_compile_options opt = CODA_COMPILE_OPTIONS_INIT;
        opt.device = CODA_DEVICE_CPU;
        opt.flags = mode[m].flags;
        opt.fold = mode[m].fold;
        double e = run_error(g, seed, &opt, want);
        if (m == 0) base = e;
        if (e >= 0 && e <= fmax(tolerance, 2 * base)) continue;
        report(g, &opt);
        ck_abort_msg("seed %llu, %s: error %g (unfused %g), %s", (unsigned long long)seed, mode[m].name, e, base, coda_error());
    }
    random_args_free(g, want);
    graph_free(g);
}

START_TEST(test_f32)
{
    struct random_options ro = {.dtype = CODA_F32, .patterns = 4};
    uint64_t seed = random_seed();
    for (uint64_t i = 0; i < 300; i++) check_graph(seed + i, &ro, 2e-5);
}
END_TEST

START_TEST(test_mixed)
{
    struct random_options ro = {.patterns = 6};
    uint64_t seed = random_seed();
    for (uint64_t i = 0; i < 200; i++) check_graph(seed + i, &ro, 3e-2);
}
END_TEST

START_TEST(test_one_pattern)
{
    struct random_options ro = {.dtype = CODA_BF16, .patterns = 1, .most_dim = 96};
    uint64_t seed = random_seed();
    for (uint64_t i = 0; i < 300; i++) check_graph(seed + i, &ro, 2e-2);
}
END_TEST

Suite *plan_suite(void);
Suite *plan_suite(void)
{
    Suite *s = suite_create("plan");
    TCase *t = tcase_create("cpu device against fp64");
    tcase_set_timeout(t, 600);
    tcase_add_test(t, test_f32);
    tcase_add_test(t, test_mixed);
    tcase_add_test(t, test_one_pattern);
    suite_add_tcase(s, t);
    return s;
}
