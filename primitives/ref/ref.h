/* ref.h -- how a reference in double is defined: what a primitive computes, in plain C, as written in
 * a textbook. The CPU device and every test stand on these. Order of `in` and `params` as in the
 * primitive's signature. */
#ifndef REF_H
#define REF_H

#include "prim.h"

#define UNUSED __attribute__((unused))

/* REFERENCE_MAP(relu) { return in[0] < 0 ? 0 : in[0]; } */
#define REFERENCE_MAP(name)                                                                                  \
    double coda_ref_##name(const double *in, const double *params);                                          \
    double coda_ref_##name(UNUSED const double *in, UNUSED const double *params)

/* REFERENCE_REDUCE(sum) = {init, push, merge, finish}; */
#define REFERENCE_REDUCE(name)                                                                               \
    extern const struct prim_reduce coda_ref_##name;                                                         \
    const struct prim_reduce coda_ref_##name

/* REFERENCE_PAIR(swap) { double first = *a; *a = *b; *b = first; } */
#define REFERENCE_PAIR(name)                                                                                 \
    void coda_ref_##name(double *a, double *b, double cosine, double sine);                                  \
    void coda_ref_##name(double *a, double *b, UNUSED double cosine, UNUSED double sine)

#endif
