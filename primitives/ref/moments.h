/* moments.h -- the state of m2 and of those who read the same: n, mean and M2 of what has been seen so far.
 */
#ifndef MOMENTS_H
#define MOMENTS_H

#include "lanes.h"

static inline void moments_init(double *state) { state[0] = state[1] = state[2] = 0; }

static inline void moments_push(double *state, double x, UNUSED int64_t col, UNUSED double key)
{
    double d = x - state[1];
    state[0] += 1;
    state[1] += d / state[0];
    state[2] += d * (x - state[1]);
}

static inline void moments_merge(double *state, const double *other)
{
    double n = state[0] + other[0], d = other[1] - state[1], part = n > 0 ? other[0] / n : 0;
    state[2] += other[2] + d * d * state[0] * part;
    state[1] += d * part;
    state[0] = n;
}

/* In lanes: the sum makes a block's mean, the squares of what differs from that its M2. */
static ALWAYS_INLINE void moments_fold_of(double *state, const float *x, int64_t n)
{
    for (int64_t at = 0; at < n; at += REF_BLOCK) {
        int64_t part = n - at < REF_BLOCK ? n - at : REF_BLOCK;
        double mean = ref_sum(x + at, part, 0, false) / (double)part;
        moments_merge(state, (double[]){(double)part, mean, ref_sum(x + at, part, mean, true)});
    }
}
REFERENCE_FOLD(moments_fold)

#endif
