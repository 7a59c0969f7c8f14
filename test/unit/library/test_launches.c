/* test_launches.c -- how many launches blocks take that decode, at every number of sequences. */
#include "util_run.h"

#include "tests.h" /* last: Check has a macro named fail */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* Four products, attention between them, and the statistic of what comes in: appends, norms of heads,
 * rotations and residuals have none of their own. */
static const char *const blocks[] = {"examples/graphs/llama_cache.coda", "examples/graphs/qwen3_cache.coda"};
static const int64_t sequences[] = {1, 2, 3, 8, 9, 16, 17, 33, 64};

static void expect_launches(const graph *g, const int64_t *dims, int launches)
{
    coda_compile_options opt = CODA_COMPILE_OPTIONS_INIT;
    coda_plan_stats stats = CODA_PLAN_STATS_INIT;
    coda_graph *bound;
    coda_plan *p;
    opt.device = CODA_DEVICE_NONE;
    opt.flags = CODA_PLAN_ONLY;
    ck_assert_msg(coda_graph_bind(&bound, g, dims, 1) == CODA_OK, "%s", coda_error());
    ck_assert_msg(coda_compile(&p, bound, &opt) == CODA_OK, "%s", coda_error());
    coda_plan_stats_get(p, &stats);
    ck_assert_msg(stats.launches == launches, "%lld sequences: %d launches", (long long)dims[0],
                  stats.launches);
    coda_plan_free(p);
    coda_graph_free(bound);
}

START_TEST(a_block_with_caches)
{
    graph *g = run_load(blocks[_i]);
    ck_assert_msg(g != NULL, "%s", coda_error());
    for (int i = 0; i < ARRAY_SIZE(sequences); i++) expect_launches(g, &sequences[i], 6);
    graph_free(g);
}
END_TEST

/* What is read back as one row is in the row's own program, as for any number of rows. */
START_TEST(a_norm_of_few_rows)
{
    graph *g = graph_parse("dim %T = 0..64\n%x = input bf16[T,512]\n%g = weight bf16[512]\n"
                           "%1 = rms_norm %x, %g\n%2 = softmax %1\noutput %y = %2\n");
    ck_assert_msg(g != NULL, "%s", coda_error());
    for (int64_t t = 0; t <= 3; t++) expect_launches(g, &t, 1);
    graph_free(g);
}
END_TEST

/* A rotation of half of a product's columns does not join it, and leaves its columns unpaired: a gate that
 * pairs them otherwise has no kernel of its own. */
START_TEST(a_pair_that_does_not_join)
{
    graph *g = graph_parse("dim %T = 1..64\n%x = input bf16[T,64]\n%w = weight bf16[64,64]\n"
                           "%p = matmul %x, %w\n%h = slice %p {axis=1, start=0, stop=32, step=1}\n"
                           "%r = rope %h {base=10000, head_dim=32, rotary=32, heads=1, half=1}\n"
                           "%1 = slice %p {axis=1, start=0, stop=64, step=2}\n"
                           "%2 = slice %p {axis=1, start=1, stop=64, step=2}\n"
                           "%s = swiglu %1, %2\noutput %a = %r\noutput %b = %s\n");
    ck_assert_msg(g != NULL, "%s", coda_error());
    for (int64_t t = 1; t <= 64; t *= 8) expect_launches(g, &t, 2);
    graph_free(g);
}
END_TEST

/* One value may be any number of outputs, more than a program has ports: each gets it. */
START_TEST(one_value_of_many_outputs)
{
    enum { OUTPUTS = 60, N = 8 };
    static float x[N], y[OUTPUTS][N];
    coda_compile_options opt = CODA_COMPILE_OPTIONS_INIT;
    coda_graph *g = coda_graph_new();
    coda_value v = coda_relu(g, coda_input(g, "x", CODA_F32, 2, (int64_t[]){1, N}));
    void *args[1 + OUTPUTS] = {x};
    coda_plan *p;
    for (int i = 0; i < OUTPUTS; i++) {
        char name[8];
        snprintf(name, sizeof name, "y%d", i);
        coda_output(g, name, v);
        args[1 + i] = y[i];
    }
    opt.device = CODA_DEVICE_CPU, opt.flags = _i ? CODA_NO_FUSION : 0;
    ck_assert_msg(coda_compile(&p, g, &opt) == CODA_OK, "%s", coda_error());
    void *workspace = aligned_alloc(256, coda_plan_workspace(p) / 256 * 256 + 256);
    memset(y, 0xff, sizeof y);
    for (int i = 0; i < N; i++) x[i] = (float)(i - 3);
    ck_assert_msg(coda_run(p, args, NULL, workspace, NULL) == CODA_OK, "%s", coda_error());
    for (int i = 0; i < OUTPUTS * N; i++)
        ck_assert_msg(y[i / N][i % N] == (float)MAX(i % N - 3, 0), "y%d[%d]", i / N, i % N);
    free(workspace);
    coda_plan_free(p);
    coda_graph_free(g);
}
END_TEST

TESTS(launches, EACH(a_block_with_caches, ARRAY_SIZE(blocks)), ONE(a_norm_of_few_rows),
      ONE(a_pair_that_does_not_join), EACH(one_value_of_many_outputs, 2));
