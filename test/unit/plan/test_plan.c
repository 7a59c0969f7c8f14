/* test_plan.c -- random graphs, compiled for the CPU device in every mode, against fp64: what the plan
 * computes is what the graph says. */
#include "util_run.h"
#include "util_scale.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>

#include <check.h>

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

static void check_graph(uint64_t seed, const struct random_options *ro, double tolerance)
{
    static const struct { const char *name; unsigned flags; coda_fold fold; } mode[] = {
        {"unfused", CODA_NO_FUSION, CODA_FOLD_NONE},
        {"fused", 0, CODA_FOLD_NONE},
        {"folded", 0, CODA_FOLD_COPY},
        {"folded in place", 0, CODA_FOLD_IN_PLACE},
    };
    graph *g = random_graph(seed, ro);
    if (ro->dtype != CODA_F32 && run_ill_conditioned(g)) {
        graph_free(g);
        return;
    }
    void **want = run_reference(g, seed);
    double base = 0;
    ck_assert_msg(want != NULL, "%s", coda_error());
    for (int m = 0; m < ARRAY_SIZE(mode); m++) {
        coda_compile_options opt = CODA_COMPILE_OPTIONS_INIT;
        opt.device = CODA_DEVICE_CPU;
        opt.flags = mode[m].flags;
        opt.fold = mode[m].fold;
        double e = run_on_cpu(g, seed, &opt, want);
        if (m == 0) base = e;
        if (e >= 0 && e <= fmax(tolerance, 2 * base)) continue;
        report(g, &opt);
        ck_abort_msg("seed %llu, %s: error %g (unfused %g), %s", (unsigned long long)seed, mode[m].name, e,
                     base, coda_error());
    }
    random_args_free(g, want);
    graph_free(g);
}

START_TEST(test_f32)
{
    struct random_options ro = {.dtype = CODA_F32, .patterns = 4};
    uint64_t seed = random_seed();
    for (uint64_t i = 0; i < (uint64_t)scaled(300); i++) check_graph(seed + i, &ro, 2e-5);
}
END_TEST

START_TEST(test_mixed)
{
    struct random_options ro = {.patterns = 6};
    uint64_t seed = random_seed();
    for (uint64_t i = 0; i < (uint64_t)scaled(200); i++) check_graph(seed + i, &ro, 3e-2);
}
END_TEST

START_TEST(test_one_pattern)
{
    struct random_options ro = {.dtype = CODA_BF16, .patterns = 1, .most_dim = 96};
    uint64_t seed = random_seed();
    for (uint64_t i = 0; i < (uint64_t)scaled(300); i++) check_graph(seed + i, &ro, 2e-2);
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
