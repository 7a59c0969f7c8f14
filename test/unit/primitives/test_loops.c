/*
 * test_loops.c -- the CPU device's loops over rows, by each set of instructions that the machine has: maps
 * against the formula for one element, folds against pushes, exp, tanh and erfc against those of the C
 * library.
 */
#include <math.h>
#include <stdlib.h>

#include "base.h"
#include "prim.h"
#include "ref/elementary.h"

#include "tests.h" /* last: Check has a macro named fail */

/* ---- Elementary functions ---- */

static void near(const char *name, double x, double got, double want, double allowed)
{
    if (isnan(want) ? isnan(got) : got == want || fabs(got - want) <= allowed * fabs(want)) return;
    ck_abort_msg("%s(%.17g) is %.17g, not %.17g", name, x, got, want);
}

static void elementary(double x)
{
    near("exp", x, fast_exp(x), exp(x), 1e-12);
    near("tanh", x, fast_tanh(x), tanh(x), 1e-11);
    if (erfc(x) == 0 || erfc(x) > 1e-300) near("erfc", x, fast_erfc(x), erfc(x), 1e-9);
}

/* All floats of 16 bits, and numbers in between. */
START_TEST(elementary_functions)
{
    for (int i = 0; i < 65536; i++) {
        uint16_t bits = (uint16_t)i;
        double bf16 = dtype_load(CODA_BF16, &bits, 0), f16 = dtype_load(CODA_F16, &bits, 0);
        if (!(fabs(bf16) > 708)) elementary(bf16);
        elementary(f16 > 708 || f16 < -708 ? 1 : f16);
        elementary((i - 32768) * (700.0 / 32768));
        elementary((i - 32768) * 1e-7);
    }
    ck_assert(fast_exp(-(double)INFINITY) == 0 && fast_exp(-710) == 0 && isinf(fast_exp(710)) &&
              isnan(fast_exp(NAN)));
    ck_assert(fast_tanh(INFINITY) == 1 && fast_tanh(-1e300) == -1 && signbit(fast_tanh(-0.0)));
    ck_assert(fast_erfc(INFINITY) == 0 && fast_erfc(-1e300) == 2);
}
END_TEST

/* ---- Maps ---- */

static const float special[] = {0,     -0.0f,  1,      -1,    0.5f,   -3,       88,        -88, 104,
                                1e-3f, 1e-20f, 1e-41f, 1e18f, -1e30f, INFINITY, -INFINITY, NAN, 16777216};

/* The double arithmetic may be fused: one more rounding, which a float seldom shows. */
static bool agrees(float got, double want)
{
    float w = (float)want;
    return isnan(w) ? isnan(got)
                    : got == w || got == nextafterf(w, INFINITY) || got == nextafterf(w, -INFINITY);
}

enum { WIDTH = 1000 };

static void compare_map(const struct prim *p, const float in[PRIM_MAX_INPUTS][WIDTH], const double *param,
                        int64_t n)
{
    static float out[PRIM_LEVELS][WIDTH + 1];
    const float *at[PRIM_MAX_INPUTS] = {in[0], in[1], in[2], in[3]};
    for (int level = 0; level <= (int)vectors_most(); level++) {
        out[level][n] = 77;
        p->loops->row[level](out[level], at, param, n);
        ck_assert(out[level][n] == 77);
        for (int64_t i = 0; i < n; i++) {
            double x[] = {in[0][i], in[1][i], in[2][i], in[3][i]}, want = p->reference(x, param);
            ck_assert_msg(agrees(out[level][i], want), "%s(%g, %g, %g) by v%d is %.9g, not %.9g", p->name,
                          x[0], x[1], x[2], level + 2, (double)out[level][i], want);
            if (level == VECTORS_V4)
                ck_assert_msg(!memcmp(&out[level][i], &out[VECTORS_V3][i], 4) || isnan(out[level][i]),
                              "%s(%g): v3 and v4 differ", p->name, x[0]);
        }
    }
}

START_TEST(maps)
{
    const struct prim *p = &prim_table[_i];
    static float in[PRIM_MAX_INPUTS][WIDTH];
    const double param[PRIM_MAX_PARAMS] = {0.75, 2, 0.5, 1};
    uint64_t x = 1 + (uint64_t)_i;
    if (p->kind != PRIM_MAP) return;
    for (int round = 0; round < 20; round++) {
        for (int k = 0; k < PRIM_MAX_INPUTS; k++)
            for (int i = 0; i < WIDTH; i++) {
                x = x * 6364136223846793005u + 1442695040888963407u;
                float drawn = (float)((double)(int64_t)(x >> 11) * 0x1p-52 - 1) * (i % 3 ? 4 : 60);
                in[k][i] = x % 8 ? drawn : special[x / 8 % ARRAY_SIZE(special)];
            }
        compare_map(p, in, param, round < 19 ? 1 + round * 7 : WIDTH);
    }
}
END_TEST

/* ---- Reductions ---- */

static double by_pushes(const struct prim *p, const float *x, int64_t n)
{
    double state[PRIM_MAX_STATE] = {0};
    p->reduce->init(state);
    for (int64_t i = 0; i < n; i++) p->reduce->push(state, x[i], i, 0);
    return p->reduce->finish(state);
}

static void compare_fold(const struct prim *p, const float *x, int64_t n)
{
    for (int level = 0; level <= (int)vectors_most(); level++) {
        double state[PRIM_MAX_STATE] = {0}, want = by_pushes(p, x, n);
        p->reduce->init(state);
        p->reduce->fold(state, x, n, level);
        double got = p->reduce->finish(state);
        bool good = isnan(want) ? isnan(got) : got == want || fabs(got - want) <= 1e-10 * fmax(fabs(want), 1);
        ck_assert_msg(good, "%s of %lld by v%d is %.17g, not %.17g", p->name, (long long)n, level + 2, got,
                      want);
    }
}

START_TEST(folds)
{
    const struct prim *p = &prim_table[_i];
    static const int64_t lengths[] = {1, 2, 7, 8, 9, 511, 512, 513, WIDTH};
    float x[WIDTH];
    if (p->kind != PRIM_REDUCE || !p->reduce->fold) return;
    for (int l = 0; l < ARRAY_SIZE(lengths); l++) {
        int64_t n = lengths[l];
        for (int i = 0; i < n; i++) x[i] = sinf((float)(i * i)) * 30 + 5;
        compare_fold(p, x, n);
        for (int s = 0; s < ARRAY_SIZE(special); s++) {
            float kept = x[n / 2];
            if (fabsf(special[s]) < 1e4f || !isfinite(special[s])) x[n / 2] = special[s];
            compare_fold(p, x, n);
            x[n / 2] = kept;
        }
        for (int i = 0; i < n; i++) x[i] = -INFINITY;
        compare_fold(p, x, n);
    }
}
END_TEST

TESTS(loops, SECONDS(120), ONE(elementary_functions), EACH(maps, prim_count), EACH(folds, prim_count));
