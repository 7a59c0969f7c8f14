/* test_top_k.c -- the k largest of each row: the evaluator and the CPU device against a sort, and what their
 * kernels compile to. */
#include "executable.h" /* before check.h, which has a macro called fail */
#include "jit.h"
#include "util_scale.h"
#include "util_top_k.h"

#include <check.h>

Suite *top_k_suite(void);

START_TEST(evaluates)
{
    const struct top_k_case *c = &top_k_cases[_i];
    graph *g = top_k_graph(c);
    void **args = top_k_args(c, g, 11, true);
    ck_assert_msg(coda_evaluate(g, args) == CODA_OK, "%s: %s", c->name, coda_error());
    ck_assert_int_eq(top_k_differences(c, g, args, true), 0);
    random_args_free(g, args);
    graph_free(g);
}
END_TEST

START_TEST(runs_on_the_host)
{
    const struct top_k_case *c = &top_k_cases[_i / 2];
    coda_compile_options opt = CODA_COMPILE_OPTIONS_INIT;
    struct run_buffers b;
    coda_plan *p;
    graph *g = top_k_graph(c);
    void **args = top_k_args(c, g, 12, false);
    opt.device = CODA_DEVICE_CPU;
    opt.flags = _i % 2 ? CODA_NO_FUSION : 0;
    ck_assert_msg(coda_compile(&p, g, &opt) == CODA_OK, "%s: %s", c->name, coda_error());
    bool ran = run_upload(&b, g, p, args, false) && run_prepare(&b, p) && run_plan(&b, p);
    ck_assert_msg(ran, "%s: %s", c->name, coda_error());
    ck_assert_int_eq(top_k_differences(c, g, args, false), 0);
    run_release(&b);
    random_args_free(g, args);
    coda_plan_free(p);
    graph_free(g);
}
END_TEST

/* Values and indices of one call are one launch, with and without fusion. */
START_TEST(is_one_launch)
{
    const struct top_k_case *c = &top_k_cases[0];
    graph *g = top_k_graph(c);
    for (int m = 0; m < 2; m++) {
        coda_compile_options opt = CODA_COMPILE_OPTIONS_INIT;
        coda_plan_stats stats = CODA_PLAN_STATS_INIT;
        coda_plan *p;
        opt.device = CODA_DEVICE_CPU;
        opt.flags = m ? CODA_NO_FUSION : 0;
        ck_assert_int_eq(coda_compile(&p, g, &opt), CODA_OK);
        ck_assert_int_eq(coda_plan_stats_get(p, &stats), CODA_OK);
        ck_assert_int_eq(stats.launches, 1);
        coda_plan_free(p);
    }
    graph_free(g);
}
END_TEST

/* Nothing spills, and ptxas has nothing to say. */
START_TEST(compiles)
{
    const struct top_k_case *c = &top_k_cases[_i];
    coda_compile_options opt = CODA_COMPILE_OPTIONS_INIT;
    char why[256];
    coda_plan *p;
    if (!jit_nvrtc_info(why, sizeof why) || !scale_takes_half(_i)) return; /* asked in the test's process */
    graph *g = top_k_graph(c);
    opt.device = CODA_DEVICE_NONE;
    opt.arch = "sm_90a";
    opt.flags = scale_kernels_are_kept() ? 0 : CODA_NO_CACHE;
    ck_assert_msg(coda_compile(&p, g, &opt) == CODA_OK, "%s: %s", c->name, coda_error());
    for (int i = 0; i < p->kernels; i++) {
        const struct compiled_kernel *k = &p->kernel[i];
        ck_assert_msg(k->info.spill_bytes == 0, "%s: %s spills %d bytes", c->name, k->info.name,
                      k->info.spill_bytes);
        ck_assert_msg(!k->cubin.warning[0], "%s: %s: %s", c->name, k->info.name, k->cubin.warning);
    }
    coda_plan_free(p);
    graph_free(g);
}
END_TEST

Suite *top_k_suite(void)
{
    Suite *s = suite_create("top_k");
    TCase *t = tcase_create("top_k"), *n = tcase_create("nvrtc");
    tcase_add_loop_test(t, evaluates, 0, top_k_case_count);
    tcase_add_loop_test(t, runs_on_the_host, 0, 2 * top_k_case_count);
    tcase_add_test(t, is_one_launch);
    tcase_set_timeout(n, 120);
    tcase_set_tags(n, "nvrtc");
    tcase_add_loop_test(n, compiles, 0, top_k_case_count);
    suite_add_tcase(s, t);
    suite_add_tcase(s, n);
    return s;
}
