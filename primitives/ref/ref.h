/* ref.h -- how a reference in double is defined: what a primitive computes, in plain C, as written in
 * a textbook. The CPU device and every test stand on these. Order of `in` and `params` as in the
 * primitive's signature. */
#ifndef REF_H
#define REF_H

#include "prim.h"

#define UNUSED __attribute__((unused))

#define ALWAYS_INLINE inline __attribute__((always_inline))

/* REFERENCE_MAP(relu) { return in[0] < 0 ? 0 : in[0]; }
 *
 * The formula is compiled for one element, and as loops over a row for each set of instructions, in which the
 * compiler makes vectors of it. */
#define REFERENCE_MAP(name)                                                                                  \
    double coda_ref_##name(const double *in, const double *params);                                          \
    static ALWAYS_INLINE double map_##name(const double *in, const double *params, bool exact);              \
    REFERENCE_LOOP(name, v2, )                                                                               \
    REFERENCE_LOOP(name, v3, REFERENCE_V3)                                                                   \
    REFERENCE_LOOP(name, v4, REFERENCE_V4)                                                                   \
    extern const struct prim_loops coda_loops_##name;                                                        \
    const struct prim_loops coda_loops_##name = {{loop_v2_##name, loop_v3_##name, loop_v4_##name}};          \
    double coda_ref_##name(const double *in, const double *params) { return map_##name(in, params, true); }  \
    static ALWAYS_INLINE double map_##name(UNUSED const double *in, UNUSED const double *params,             \
                                           UNUSED bool exact)

/* In a formula: by the C library for one element, which coda_evaluate computes in fp64; without a call in the
 * loops, whose results are floats. */
#define ref_exp(x) (exact ? exp(x) : fast_exp(x))
#define ref_tanh(x) (exact ? tanh(x) : fast_tanh(x))
#define ref_erfc(x) (exact ? erfc(x) : fast_erfc(x))

/* ORDER vectors of lib/base */
#if defined(__x86_64__)
#define REFERENCE_V3 __attribute__((target("avx2,fma")))
#define REFERENCE_V4                                                                                         \
    __attribute__((target("avx2,fma,avx512f,avx512vl,avx512dq,avx512bw,prefer-vector-width=512")))
#else
#define REFERENCE_V3
#define REFERENCE_V4
#endif

#define REFERENCE_LOOP(name, level, instructions)                                                            \
    instructions static void loop_##level##_##name(float *restrict out, const float *const *in,              \
                                                   const double *params, int64_t n)                          \
    {                                                                                                        \
        const float *a = in[0], *b = in[1], *c = in[2], *d = in[3];                                          \
        for (int64_t i = 0; i < n; i++)                                                                      \
            out[i] = (float)map_##name((const double[]){a[i], b[i], c[i], d[i]}, params, false);             \
    }

#pragma GCC diagnostic ignored "-Wmissing-field-initializers"
/* REFERENCE_REDUCE(sum) = {init, push, merge, finish, fold}; fold may be left out. */
#define REFERENCE_REDUCE(name)                                                                               \
    extern const struct prim_reduce coda_ref_##name;                                                         \
    const struct prim_reduce coda_ref_##name

/* REFERENCE_PAIR(swap) { double first = *a; *a = *b; *b = first; } */
#define REFERENCE_PAIR(name)                                                                                 \
    void coda_ref_##name(double *a, double *b, double cosine, double sine);                                  \
    void coda_ref_##name(double *a, double *b, UNUSED double cosine, UNUSED double sine)

#endif
