/* test_row_sums.c -- rows added by id: the evaluator and the CPU device against loops, to the bit, and what
 * their kernels compile to. */
#include "executable.h" /* before check.h, which has a macro called fail */
#include "check_plan.h"
#include "jit.h"
#include "util_row_sums.h"
#include "util_scale.h"

#include "tests.h" /* last: Check has a macro named fail */
#include <stdio.h>
#include <string.h>

START_TEST(evaluates)
{
    const struct row_sums_case *c = &row_sums_cases[_i];
    graph *g = row_sums_graph(c);
    void **args = row_sums_args(c, g, 21, true);
    ck_assert_msg(coda_evaluate(g, args) == CODA_OK, "%s: %s", c->name, coda_error());
    ck_assert_int_eq(row_sums_differences(c, g, args, true), 0);
    random_args_free(g, args);
    graph_free(g);
}
END_TEST

static void run_on_the_host(const struct row_sums_case *c, uint64_t seed, unsigned flags)
{
    coda_compile_options opt = CODA_COMPILE_OPTIONS_INIT;
    struct run_buffers b;
    coda_plan *p;
    graph *g = row_sums_graph(c);
    void **args = row_sums_args(c, g, seed, false);
    opt.device = CODA_DEVICE_CPU;
    opt.flags = flags;
    ck_assert_msg(coda_compile(&p, g, &opt) == CODA_OK, "%s: %s", c->name, coda_error());
    bool ran = run_upload(&b, g, p, args, false) && run_prepare(&b, p) && run_plan(&b, p);
    ck_assert_msg(ran, "%s: %s", c->name, coda_error());
    ck_assert_int_eq(row_sums_differences(c, g, args, false), 0);
    run_release(&b);
    random_args_free(g, args);
    coda_plan_free(p);
    graph_free(g);
}

START_TEST(runs_on_the_host) { run_on_the_host(&row_sums_cases[_i / 2], 22, _i % 2 ? CODA_NO_FUSION : 0); }
END_TEST

START_TEST(runs_drawn_ones_on_the_host)
{
    uint64_t seed = random_seed();
    for (int i = 0; i < scaled(200); i++) {
        const struct row_sums_case c = row_sums_draw(seed + (uint64_t)i);
        run_on_the_host(&c, seed + (uint64_t)i, 0);
    }
}
END_TEST

START_TEST(does_not_touch_what_no_id_names)
{
    _Alignas(64) float x[24], sums[400];
    _Alignas(64) int32_t ids[16];
    _Alignas(256) char workspace[1024];
    coda_compile_options opt = CODA_COMPILE_OPTIONS_INIT;
    coda_plan *p;
    graph *g = row_sums_graph(&row_sums_untouched);
    opt.device = CODA_DEVICE_CPU;
    ck_assert_msg(coda_compile(&p, g, &opt) == CODA_OK, "%s", coda_error());
    ck_assert_uint_le(coda_plan_workspace(p), sizeof workspace);
    row_sums_begin_untouched(x, ids, sums);
    ck_assert_msg(coda_run(p, (void *[]){x, ids, sums}, NULL, workspace, NULL) == CODA_OK, "%s",
                  coda_error());
    ck_assert_int_eq(row_sums_touched(sums), 0);
    coda_plan_free(p);
    graph_free(g);
}
END_TEST

/* ---- Launches ---- */

/* One sorts, one adds, also to what an output holds. If the sums are read besides, or lie apart, they lie in
 * memory of their own, and a copy is added; of two equal sums one is a copy. */
static const struct {
    const char *text;
    int launches;
} plans[] = {
    {"output %y = %s\n", 2},
    {"output %y += %s\n", 2},
    {"%r = reshape %s {d0=160, rank=1}\noutput %y += %r\n", 2},
    {"output %y += %s stride=[20,1]\n", 3},
    {"output %y = %s\noutput %z += %s\n", 3},
    {"%c = cast %s {to=bf16}\noutput %y = %c\noutput %z += %s\n", 3},
    {"%t = row_sums %x, %i {rows=10}\noutput %y = %s\noutput %z = %t\n", 3},
};

START_TEST(launches)
{
    char text[512];
    coda_plan_stats stats = CODA_PLAN_STATS_INIT;
    snprintf(text, sizeof text,
             "%%x = input bf16[64,16]\n%%i = input i32[64]\n%%s = row_sums %%x, %%i {rows=10}\n%s",
             plans[_i].text);
    coda_plan *p = plan_of_text(text);
    ck_assert_int_eq(coda_plan_stats_get(p, &stats), CODA_OK);
    ck_assert_int_eq(stats.launches, plans[_i].launches);
    coda_plan_free(p);
}
END_TEST

/* The sorted ids are all that a run needs besides: 8 bytes for each token and 4 for each row. */
START_TEST(workspace)
{
    coda_plan *p =
        plan_of_text("%x = input bf16[1000,16]\n%i = input i32[1000]\n%s = row_sums %x, %i {rows=500}\n"
                     "output %y = %s\n");
    ck_assert_uint_eq(coda_plan_workspace(p), (4 * (2 * 1000 + 500 + 1) + 255) / 256 * 256);
    coda_plan_free(p);
}
END_TEST

/* ---- Kernels ---- */

/* Nothing spills, and ptxas has nothing to say. */
START_TEST(compiles)
{
    static const char *const arch[] = {"sm_80", "sm_86", "sm_89", "sm_90a"};
    const struct row_sums_case *c = &row_sums_cases[_i / ARRAY_SIZE(arch)];
    char why[256];
    if (!scale_takes_one_in(8, _i) || !jit_nvrtc_info(why, sizeof why)) return; /* asked in this process */
    graph *g = row_sums_graph(c);
    plan_compiles_cleanly(g, c->name, arch[_i % ARRAY_SIZE(arch)]);
    graph_free(g);
}
END_TEST

TESTS(row_sums, EACH(evaluates, row_sums_case_count), EACH(runs_on_the_host, 2 * row_sums_case_count),
      ONE(runs_drawn_ones_on_the_host), ONE(does_not_touch_what_no_id_names),
      EACH(launches, ARRAY_SIZE(plans)), ONE(workspace), CASE("nvrtc"), TAG("nvrtc"),
      EACH(compiles, 4 * row_sums_case_count));
