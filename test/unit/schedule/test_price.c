/* test_price.c -- which programs are long: their blocks start together, not as SMs become free; what a
 * cluster costs fp8. */
#include "executable.h"
#include "pipeline.h"
#include "schedule.h"

#include <stdio.h>
#include <string.h>

#include "tests.h" /* last: Check has a macro named fail */

static const char mlp[] = "%%x = input bf16[%d,%d]\n"
                          "%%w = weight bf16[%d,%d]\n"
                          "%%n = rms_norm %%x {eps=1e-5}\n"
                          "%%y = matmul %%n, %%w\n"
                          "output %%y = %%y\n";

static const char cache[] = "%q = input bf16[64,1,4096]\n"
                            "%k = input bf16[64,65536,1024]\n"
                            "%v = input bf16[64,65536,1024]\n"
                            "%n = input i32[64]\n"
                            "%y = attention %q, %k, %v, %n {scale=0.088,heads=32,kv_heads=8}\n"
                            "output %y = %y\n";

/* rows and columns of a product, and whether 2 * rows * columns^2 operations take an H200 0.2 ms or more */
static const struct {
    int rows, columns;
    bool is_long;
} shape[] = {{1, 4096, false},    {64, 8192, false},  {2048, 4096, false}, {16384, 2048, true},
             {16384, 4096, true}, {4096, 8192, true}, {65536, 64, false}};

static coda_plan *plan_folded(const char *text, coda_fold fold)
{
    coda_compile_options opt = CODA_COMPILE_OPTIONS_INIT;
    coda_graph *g;
    coda_plan *p;
    opt.fold = fold;
    opt.device = CODA_DEVICE_NONE;
    opt.flags = CODA_PLAN_ONLY;
    opt.arch = "sm_90a";
    ck_assert_msg(coda_graph_parse(&g, text) == CODA_OK, "%s", coda_error());
    ck_assert_msg(coda_compile(&p, g, &opt) == CODA_OK, "%s", coda_error());
    coda_graph_free(g);
    return p;
}

static coda_plan *plan_of(const char *text) { return plan_folded(text, CODA_FOLD_NONE); }

static int count_long(const coda_plan *p)
{
    int n = 0;
    for (int i = 0; i < p->plan.programs; i++) n += program_is_long(&p->plan.program[i], &p->plan.target);
    return n;
}

/* The walk over the norm's rows has no product, however long it takes. */
START_TEST(products_are_long_by_their_work)
{
    char text[512];
    int n = shape[_i].columns;
    snprintf(text, sizeof text, mlp, shape[_i].rows, n, n, n);
    coda_plan *p = plan_of(text);
    ck_assert_int_eq(count_long(p), shape[_i].is_long);
    coda_plan_free(p);
}
END_TEST

START_TEST(attention_over_a_cache_is_not)
{
    coda_plan *p = plan_of(cache);
    ck_assert_int_eq(count_long(p), 0);
    coda_plan_free(p);
}
END_TEST

/* Two waves of fp8 and sixteen are tiles of 256 rows, in blocks on their own. */
START_TEST(waves_of_fp8_have_no_clusters)
{
    int rows = _i ? 16384 : 2048;
    char text[256], plan[4096];
    snprintf(text, sizeof text,
             "%%x = input f8e4m3[%d,4096]\n%%w = weight f8e4m3[4096,4096]\n%%y = matmul %%x, %%w\n"
             "output %%y = %%y\n",
             rows);
    coda_plan *p = plan_of(text);
    coda_plan_print(p, CODA_TEXT_PLAN, plan, sizeof plan);
    ck_assert_msg(strstr(plan, "sm90_f8 256x128x128") && !strstr(plan, "cluster="), "%s", plan);
    coda_plan_free(p);
}
END_TEST

/* Of a norm whose states products finish, 12 states of a row would be two lots: a tile has fewer. A pass over
 * rows, and a warp for each of few rows, have them all at once. */
START_TEST(products_finish_one_lot_of_states)
{
    static const struct {
        int rows;
        coda_fold fold;
        bool few;
    } cases[] = {{345, CODA_FOLD_COPY, true}, {345, CODA_FOLD_NONE, false}, {9, CODA_FOLD_COPY, false}};
    char text[512];
    snprintf(text, sizeof text,
             "%%x = input f16[%d,384]\n%%o = weight f16[384,384]\n%%g = weight f16[384]\n%%u = weight "
             "f16[1536,384]\n%%p = matmul %%x, %%o\n%%r = add %%p, %%x\n%%n = layer_norm %%r, %%g, %%g "
             "{eps=1e-5}\n%%y = matmul %%n, %%u\noutput %%y = %%y\n",
             cases[_i].rows);
    coda_plan *p = plan_folded(text, cases[_i].fold);
    int found = 0;
    for (int i = 0; i < p->plan.programs; i++) {
        const struct program *q = &p->plan.program[i];
        if (q->kind != PROGRAM_GEMM || q->dim[2] != 384) continue;
        int64_t states = program_states(q, &p->plan.schedule[i].tile);
        ck_assert_msg((states <= 8) == cases[_i].few, "%d states", (int)states);
        found++;
    }
    ck_assert_int_eq(found, 1);
    coda_plan_free(p);
}
END_TEST

TESTS(price, EACH(products_finish_one_lot_of_states, 3),
      EACH(products_are_long_by_their_work, ARRAY_SIZE(shape)), ONE(attention_over_a_cache_is_not),
      EACH(waves_of_fp8_have_no_clusters, 2));
