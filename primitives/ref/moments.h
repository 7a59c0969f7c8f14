/* moments.h -- the state of m2 and of those who read the same: n, mean and M2 of what has been seen so far.
 */
#ifndef MOMENTS_H
#define MOMENTS_H

#include "ref.h"

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

#endif
