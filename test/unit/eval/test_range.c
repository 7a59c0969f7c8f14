/*
 * test_range.c -- numbers of every size through every operation that sums, scales or rounds: rows from 1e-45
 * to 3e38, with infinities and NaN, in each dtype, unfused, fused and with each fold, against fp64 loops and
 * against what coda.h says of special values. What is finite unfused stays finite.
 *
 * $CODA_RANGE_SEEDS is how many draws of the rows are tried, 1 without it.
 */
#include "base.h" /* before check.h, which has a macro called fail */

#include "tests.h" /* last: Check has a macro named fail */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "util_random.h"
#include "util_run.h"
#include "util_scale.h"
#include "util_range.h"

static const coda_dtype dtypes[] = {CODA_F32, CODA_BF16, CODA_F16};
static const struct {
    double gain, weight;
} sizes[] = {{1, 0.05}, {300, 1e-3}, {1e-3, 1e-3}, {1e-4, 100}};

static void *poisoned(size_t bytes, int byte)
{
    void *p = aligned_alloc(256, bytes / 256 * 256 + 256);
    ck_assert_ptr_nonnull(p);
    memset(p, byte, bytes / 256 * 256 + 256);
    return p;
}

static void run(struct range_graph *r, const struct run_mode *m, const char *what)
{
    coda_plan *p;
    coda_compile_options opt = CODA_COMPILE_OPTIONS_INIT;
    opt.device = CODA_DEVICE_CPU, opt.flags = m->flags, opt.fold = m->fold;
    ck_assert_msg(coda_compile(&p, r->g, &opt) == CODA_OK, "%s: %s", what, coda_error());
    void *prepared = poisoned(coda_plan_prepared(p), 0xff), *first = poisoned(coda_plan_workspace(p), 0xff),
         *second = poisoned(coda_plan_workspace(p), 0x7f);
    ck_assert_int_eq(coda_prepare(p, r->arg, prepared, first, NULL), CODA_OK);
    ck_assert_int_eq(coda_run(p, r->arg, prepared, second, NULL), CODA_OK);
    coda_prepare_forget(NULL, 0); /* memory of the next run may be where this one's was */
    free(prepared), free(first), free(second);
    coda_plan_free(p);
}

static void try_cases(const struct range_data *d, enum range_source source,
                      const struct range_case *const *cases, int count)
{
    static const char *const from[] = {"leaf", "product", "fp32"};
    char what[160], why[256];
    struct range_graph fp64;
    range_build(&fp64, d, source, cases, count);
    ck_assert_int_eq(coda_evaluate(fp64.g, fp64.arg), CODA_OK);
    ck_assert_msg(range_evaluated(&fp64, d, source, why, sizeof why), "%s, evaluated: %s", cases[0]->name,
                  why);
    range_free(&fp64);
    for (int m = 0; m < RUN_MODES; m++) {
        struct range_graph r;
        range_build(&r, d, source, cases, count);
        snprintf(what, sizeof what, "%s, x %s, from a %s, %s", cases[0]->name, dtype_name(d->t), from[source],
                 run_modes[m].name);
        run(&r, &run_modes[m], what);
        ck_assert_msg(range_right(&r, d, source, why, sizeof why), "%s: %s", what, why);
        range_free(&r);
    }
}

static int seeds(void)
{
    const char *s = getenv("CODA_RANGE_SEEDS");
    return s ? atoi(s) : 1;
}

/* _i: the case. Each draw has other sizes of gains and weights, too. */
START_TEST(every_magnitude)
{
    static struct range_data d;
    const struct range_case *c = &range_cases[_i];
    for (int k = 0; k < 4 * seeds(); k++)
        for (int t = 0; t < ARRAY_SIZE(dtypes); t++) {
            if (!scale_takes(12 * _i + 3 * k + t, true)) continue;
            range_fill(&d, dtypes[t], sizes[k % 4].gain, sizes[k % 4].weight, random_seed() + (uint64_t)k);
            if (!c->with_cast) try_cases(&d, RANGE_LEAF, &c, 1);
            if (!c->with_cast) try_cases(&d, RANGE_PRODUCT, &c, 1);
            if (c->with_cast) try_cases(&d, RANGE_F32, &c, 1);
        }
}
END_TEST

/* A row factor whose rows have no common stride, as those of the product have, is a kernel of its own: what
 * the product leaves for it is larger than any fp16. */
START_TEST(a_product_waits_for_its_factor)
{
    enum { B = 2, T = 8, K = 64, W = 16 };
    static uint16_t x[B * T * K], w[W * K], y[B * T * W];
    static float r[1000];
    for (int i = 0; i < B * T * K; i++) dtype_store(CODA_F16, x, i, 60000);
    for (int i = 0; i < W * K; i++) dtype_store(CODA_F16, w, i, 1);
    for (int i = 0; i < 1000; i++) r[i] = 1e-5f;
    for (int m = 0; m < RUN_MODES; m++) {
        coda_graph *g = coda_graph_new();
        coda_value vx = coda_input(g, "x", CODA_F16, 3, (int64_t[]){B, T, K});
        coda_value vr = coda_input_strided(g, "r", CODA_F32, 3, (int64_t[]){B, T, 1}, (int64_t[]){500, 3, 1});
        coda_value vw = coda_weight(g, "w", CODA_F16, 2, (int64_t[]){W, K});
        coda_output(g, "y", coda_matmul(g, coda_mul(g, vx, vr), vw));
        struct range_graph q = {.g = g, .arg = {x, r, w, y}, .args = 4};
        memset(y, 0xff, sizeof y);
        run(&q, &run_modes[m], run_modes[m].name);
        for (int i = 0; i < B * T * W; i++)
            ck_assert_msg(fabs(dtype_load(CODA_F16, y, i) - 38.4) < 0.1, "%s: y[%d] = %g", run_modes[m].name,
                          i, dtype_load(CODA_F16, y, i));
        coda_graph_free(g);
    }
}
END_TEST

/* The flag that lets fp16 overflow on the way is there, and does what it says: the product reads the gained
 * x. */
START_TEST(fast_fp16_is_a_flag)
{
    static const char *const text = "%x = input f16[4,64]\n%i = weight f16[64,64]\n%g = weight f16[64]\n"
                                    "%w = weight f16[8,64]\n%h = matmul %x, %i\n"
                                    "%n = rms_norm %h, %g {eps=1e-5}\n%y = matmul %n, %w\noutput %y = %y\n";
    int launches[2];
    for (int fast = 0; fast < 2; fast++) {
        coda_graph *g;
        coda_plan *p;
        coda_plan_stats s = CODA_PLAN_STATS_INIT;
        coda_compile_options opt = CODA_COMPILE_OPTIONS_INIT;
        opt.device = CODA_DEVICE_CPU, opt.flags = fast ? CODA_FAST_FP16 : 0;
        ck_assert_int_eq(coda_graph_parse(&g, text), CODA_OK);
        ck_assert_int_eq(coda_compile(&p, g, &opt), CODA_OK);
        ck_assert_int_eq(coda_plan_stats_get(p, &s), CODA_OK);
        launches[fast] = s.launches;
        coda_plan_free(p);
        coda_graph_free(g);
    }
    ck_assert_int_eq(launches[0], 3);
    ck_assert_int_eq(launches[1], 2);
}
END_TEST

START_TEST(attention_with_large_scores)
{
    char why[256];
    for (int i = 0; i < RANGE_SCORES * ARRAY_SIZE(dtypes); i++) {
        coda_dtype t = dtypes[i % 3];
        if (t == CODA_F16 && i / 3 > 7) continue; /* no fp16 makes such scores */
        if (!scale_takes_one_in(3, i + i / 3)) continue;
        struct range_graph r = {.g = range_attention(t), .args = 4};
        range_attention_args(t, i / 3, r.arg);
        run(&r, &run_modes[0], "attention");
        ck_assert_msg(range_attention_right(t, i / 3, r.arg, why, sizeof why), "%s: %s", dtype_name(t), why);
        range_free(&r);
    }
}
END_TEST

TESTS(range, EACH(every_magnitude, range_case_count), ONE(a_product_waits_for_its_factor),
      ONE(fast_fp16_is_a_flag), ONE(attention_with_large_scores));
