/* test_token.c -- one token of a layer of Mamba on the CPU device against the evaluator, how many launches it
 * is, and what the kernels compile to. */
#include <stdio.h>

#include "executable.h" /* before check.h, which has a macro called fail */
#include "check_plan.h"
#include "jit.h"
#include "util_scale.h"
#include "util_token.h"

#include "tests.h" /* last: Check has a macro named fail */

static void run_on_the_host(const struct token_case *c, uint64_t seed, unsigned flags)
{
    coda_compile_options opt = CODA_COMPILE_OPTIONS_INIT;
    opt.device = CODA_DEVICE_CPU;
    opt.flags = flags;
    double error = token_error(c, seed, &opt, false);
    ck_assert_msg(error >= 0 && error <= 1, "%s, seed %llu: the error is %g of what is allowed %s", c->name,
                  (unsigned long long)seed, error, error < 0 ? coda_error() : "");
}

START_TEST(runs_on_the_host)
{
    static const unsigned flags[] = {0, CODA_NO_FUSION, CODA_BATCH_INVARIANT};
    run_on_the_host(&token_cases[_i / 3], 41, flags[_i % 3]);
}
END_TEST

START_TEST(drawn_ones)
{
    uint64_t seed = random_seed();
    for (uint64_t s = seed; s < seed + (uint64_t)scaled(60); s++) {
        const struct token_case c = token_draw(s);
        run_on_the_host(&c, s, 0);
    }
}
END_TEST

/* A scan whose steps are a product, between lines of the text that make %d0 and %x. */
static const char front[] = "%u = input bf16[1,128]\n%xp = weight bf16[56,128]\n%a = weight f32[128,16]\n"
                            "%s = state f32[128,16]\n%all = matmul %u, %xp\n"
                            "%r = slice %all {axis=1, start=0, stop=24, step=1}\n"
                            "%b = slice %all {axis=1, start=24, stop=40, step=1}\n"
                            "%c = slice %all {axis=1, start=40, stop=56, step=1}\n",
                  back[] = "%dt = cast %d0 {to=f32}\n%y = scan %x, %dt, %a, %b, %c, %s {softplus=1}\n"
                           "%t = scan %x, %dt, %a, %b, %c, %s {softplus=1, after=1} @%y\n"
                           "%s1 = assign %s, %t\noutput %y = %y\n";
static const char *const steps[] = {
    "%w = weight bf16[24,128]\n%d0 = matmul %r, %w {kn=1}\n%x = silu %u\n",
    "%w0 = weight bf16[128,24]\n%w = transpose %w0 {p0=1, p1=0}\n%d0 = matmul %r, %w {kn=1}\n%x = silu %u\n",
    "%w = state bf16[128,24]\n%n = input bf16[128,24]\n%d0 = matmul %r, %w\n%w1 = assign %w, %n\n%x = matmul "
    "%r, %w1\n",
    "%q = state bf16[1,56]\n%rq = slice %q {axis=1, start=0, stop=24, step=1}\n%w = weight bf16[128,24]\n"
    "%d0 = matmul %rq, %w\n%q1 = assign %q, %all\n%x = silu %u\n",
    "%wa = weight bf16[64,24]\n%wb = weight bf16[64,24]\n%w = concat %wa, %wb {axis=0}\n%d0 = matmul %r, "
    "%w\n%x = silu %u\n",
};

/* Weights that lie the other way round, states that are written later, weights in two pieces. */
START_TEST(steps_of_other_weights)
{
    char text[1600];
    coda_graph *g;
    snprintf(text, sizeof text, "%s%s%s", front, steps[_i], back);
    ck_assert_msg(!coda_graph_parse(&g, text), "%s", coda_error());
    void **want = run_reference(g, random_seed());
    coda_compile_options opt = CODA_COMPILE_OPTIONS_INIT;
    opt.device = CODA_DEVICE_CPU;
    double error = want ? run_on_cpu(g, random_seed(), &opt, want) : -1;
    double most = want ? fmax(1e-1, 4 * run_sensitivity(g, random_seed(), want)) : 0;
    ck_assert_msg(error >= 0 && error <= most, "%s: error %g, allowed %g %s", steps[_i], error, most,
                  coda_error());
    random_args_free(g, want);
    coda_graph_free(g);
}
END_TEST

/* A row's bits must not tell that it is alone: then nothing joins. */
START_TEST(launches)
{
    const struct token_case *c = &token_cases[_i];
    for (int invariant = 0; invariant < 2; invariant++) {
        coda_compile_options opt = CODA_COMPILE_OPTIONS_INIT;
        coda_plan_stats stats = CODA_PLAN_STATS_INIT;
        coda_plan *p;
        graph *g = token_graph(c);
        opt.device = CODA_DEVICE_NONE;
        opt.arch = "sm_90a";
        opt.flags = CODA_PLAN_ONLY | (invariant ? CODA_BATCH_INVARIANT : 0);
        ck_assert_msg(coda_compile(&p, g, &opt) == CODA_OK, "%s: %s", c->name, coda_error());
        ck_assert_int_eq(coda_plan_stats_get(p, &stats), CODA_OK);
        ck_assert_msg(invariant ? stats.launches >= 5 : stats.launches == c->launches, "%s: %d launches",
                      c->name, (int)stats.launches);
        coda_plan_free(p);
        graph_free(g);
    }
}
END_TEST

/* Nothing spills, and ptxas has nothing to say. */
START_TEST(compiles)
{
    static const char *const arch[] = {"sm_80", "sm_90a"};
    const struct token_case *c = &token_cases[_i / ARRAY_SIZE(arch)];
    char why[256];
    if (!scale_takes_one_in(4, _i) || !jit_nvrtc_info(why, sizeof why)) return; /* asked in this process */
    graph *g = token_graph(c);
    plan_compiles_cleanly(g, c->name, arch[_i % ARRAY_SIZE(arch)]);
    graph_free(g);
}
END_TEST

TESTS(token, EACH(runs_on_the_host, 3 * token_case_count), ONE(drawn_ones), EACH(launches, token_case_count),
      EACH(steps_of_other_weights, ARRAY_SIZE(steps)), CASE("nvrtc"), TAG("nvrtc"),
      EACH(compiles, 2 * token_case_count));
