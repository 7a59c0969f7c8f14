/*
 * lanes.h -- sums and the largest of a row, in eight lanes of double that are added at the end, the upper
 * half to the lower one; the last elements one by one.
 */
#ifndef LANES_H
#define LANES_H

#include <math.h>

#include "ref.h"

#pragma GCC diagnostic ignored "-Wpsabi" /* such vectors are never passed to a function */

enum { REF_LANES = 8, REF_BLOCK = 512 };

/* Two halves, since compilers keep a vector that is wider than a register in memory. */
typedef double ref_half __attribute__((vector_size(4 * REF_LANES)));
typedef float ref_floats __attribute__((vector_size(2 * REF_LANES), aligned(4), may_alias));
typedef double ref_doubles __attribute__((vector_size(4 * REF_LANES), aligned(8), may_alias));

#define REF_WIDE(x) __builtin_convertvector(*(const ref_floats *)(x), ref_half)

/* The sum of eight lanes, the upper half to the lower one three times. */
static ALWAYS_INLINE double ref_halves(ref_half low, ref_half high)
{
    ref_half s = low + high;
    return (s[0] + s[2]) + (s[1] + s[3]);
}

/* The sum of x - from, or of its square. */
static ALWAYS_INLINE double ref_sum(const float *x, int64_t n, double from, bool square)
{
    ref_half low = {0}, high = {0};
    int64_t i = 0;
    for (; i + REF_LANES <= n; i += REF_LANES) {
        ref_half d = REF_WIDE(x + i) - from, e = REF_WIDE(x + i + REF_LANES / 2) - from;
        low += square ? d * d : d;
        high += square ? e * e : e;
    }
    double all = ref_halves(low, high);
    for (; i < n; i++) all += square ? (x[i] - from) * (x[i] - from) : x[i] - from;
    return all;
}

static ALWAYS_INLINE double ref_sum_of(const double *x, int64_t n)
{
    ref_half low = {0}, high = {0};
    int64_t i = 0;
    for (; i + REF_LANES <= n; i += REF_LANES) {
        low += *(const ref_doubles *)(x + i);
        high += *(const ref_doubles *)(x + i + REF_LANES / 2);
    }
    double all = ref_halves(low, high);
    for (; i < n; i++) all += x[i];
    return all;
}

/* The largest of those that are numbers; -inf if none is. */
static ALWAYS_INLINE double ref_largest_number(const float *x, int64_t n)
{
    float most[REF_LANES];
    int64_t i = 0;
    for (int l = 0; l < REF_LANES; l++) most[l] = -INFINITY;
    for (; i + REF_LANES <= n; i += REF_LANES)
        for (int l = 0; l < REF_LANES; l++) most[l] = x[i + l] > most[l] ? x[i + l] : most[l];
    for (; i < n; i++) most[0] = x[i] > most[0] ? x[i] : most[0];
    for (int l = 1; l < REF_LANES; l++) most[0] = most[l] > most[0] ? most[l] : most[0];
    return most[0];
}

/* NaN if one is. */
static ALWAYS_INLINE double ref_largest(const float *x, int64_t n)
{
    int nan = 0;
    for (int64_t i = 0; i < n; i++) nan |= x[i] != x[i];
    return nan ? (double)NAN : ref_largest_number(x, n);
}

/* A reduction's fold: NAME_of(double *state, const float *x, int64_t n), always inline, for each set of
 * instructions, behind one function. */
#define REFERENCE_FOLD(name)                                                                                 \
    static void name##_v2(double *state, const float *x, int64_t n) { name##_of(state, x, n); }              \
    REFERENCE_V3 static void name##_v3(double *state, const float *x, int64_t n) { name##_of(state, x, n); } \
    REFERENCE_V4 static void name##_v4(double *state, const float *x, int64_t n) { name##_of(state, x, n); } \
    UNUSED static void name(double *state, const float *x, int64_t n, int level)                             \
    {                                                                                                        \
        static void (*const by[PRIM_LEVELS])(double *, const float *, int64_t) = {name##_v2, name##_v3,      \
                                                                                  name##_v4};                \
        by[level](state, x, n);                                                                              \
    }

#endif
