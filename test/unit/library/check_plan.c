/* check_plan.c -- plans of a graph, and runs of them on the CPU device. */
#include "executable.h"
#include "check_plan.h"
#include "util_scale.h"

#include "tests.h" /* last: Check has a macro named fail */

static coda_plan_stats stats_of(const graph *g, const coda_compile_options *opt, size_t *workspace)
{
    coda_plan_stats s = CODA_PLAN_STATS_INIT;
    coda_plan *p = NULL;
    ck_assert_msg(coda_compile(&p, g, opt) == CODA_OK, "%s", coda_error());
    ck_assert_int_eq(coda_plan_stats_get(p, &s), CODA_OK);
    if (workspace) *workspace = coda_plan_workspace(p);
    coda_plan_free(p);
    return s;
}

coda_plan_stats plan_stats_of(const graph *g, size_t *workspace)
{
    coda_compile_options opt = CODA_COMPILE_OPTIONS_INIT;
    opt.device = CODA_DEVICE_NONE, opt.arch = "sm_90a", opt.flags = CODA_PLAN_ONLY;
    return stats_of(g, &opt, workspace);
}

coda_plan *plan_of_text(const char *text)
{
    graph *g = graph_parse(text);
    coda_compile_options opt = CODA_COMPILE_OPTIONS_INIT;
    coda_plan *p;
    ck_assert_msg(g != NULL, "%s", coda_error());
    opt.device = CODA_DEVICE_NONE, opt.arch = "sm_90a", opt.flags = CODA_PLAN_ONLY;
    ck_assert_msg(coda_compile(&p, g, &opt) == CODA_OK, "%s", coda_error());
    graph_free(g);
    return p;
}

int plan_launches(const graph *g, unsigned flags)
{
    coda_compile_options opt = CODA_COMPILE_OPTIONS_INIT;
    opt.flags = flags | CODA_PLAN_ONLY;
    return stats_of(g, &opt, NULL).launches;
}

void plan_check_modes(const graph *g, uint64_t seed)
{
    void **want = run_reference(g, seed);
    ck_assert_msg(want != NULL, "%s", coda_error());
    for (int m = 0; m < RUN_MODES; m++) {
        coda_compile_options opt = CODA_COMPILE_OPTIONS_INIT;
        opt.flags = run_modes[m].flags;
        opt.fold = run_modes[m].fold;
        double e = run_on_cpu(g, seed, &opt, want);
        ck_assert_msg(e >= 0 && e < 1e-4, "seed %llu, %s: error %g, %s", (unsigned long long)seed,
                      run_modes[m].name, e, coda_error());
    }
    random_args_free(g, want);
}

void plan_check_case(const struct launch_case *c)
{
    coda_graph *g = NULL;
    ck_assert_msg(coda_graph_parse(&g, c->text) == CODA_OK, "%s: %s", c->what, coda_error());
    int n = plan_launches(g, 0);
    ck_assert_msg(c->launches < 0 || n == c->launches, "%s: %d launches", c->what, n);
    ck_assert_int_le(n, plan_launches(g, CODA_NO_FUSION));
    for (uint64_t seed = 3; seed < 6; seed++) plan_check_modes(g, seed);
    coda_graph_free(g);
}

void plan_compiles_cleanly(const graph *g, const char *name, const char *arch)
{
    coda_compile_options opt = CODA_COMPILE_OPTIONS_INIT;
    coda_plan *p;
    opt.device = CODA_DEVICE_NONE;
    opt.arch = arch;
    opt.flags = scale_kernels_are_kept() ? 0 : CODA_NO_CACHE;
    ck_assert_msg(coda_compile(&p, g, &opt) == CODA_OK, "%s: %s", name, coda_error());
    for (int i = 0; i < p->kernels; i++) {
        const struct compiled_kernel *k = &p->kernel[i];
        ck_assert_msg(k->info.spill_bytes == 0, "%s: %s spills %d bytes", name, k->info.name,
                      k->info.spill_bytes);
        ck_assert_msg(!k->cubin.warning[0], "%s: %s: %s", name, k->info.name, k->cubin.warning);
    }
    coda_plan_free(p);
}
