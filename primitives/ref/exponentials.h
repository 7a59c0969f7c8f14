/* exponentials.h -- the state of log_sum_exp and of those who read the same: m is the largest x so far, s the
 * sum of e^(x - m). A NaN is kept in s. */
#ifndef EXPONENTIALS_H
#define EXPONENTIALS_H

#include <math.h>

#include "elementary.h"
#include "lanes.h"

static inline void exponentials_merge(double *state, const double *other)
{
    double m = fmax(state[0], other[0]);
    double a = state[0] == m ? 1 : exp(state[0] - m), b = other[0] == m ? 1 : exp(other[0] - m);
    state[1] = state[1] * a + other[1] * b;
    state[0] = m;
}

static inline void exponentials_init(double *state)
{
    state[0] = -INFINITY;
    state[1] = 0;
}

static inline void exponentials_push(double *state, double x, UNUSED int64_t col, UNUSED double key)
{
    exponentials_merge(state, (double[]){isnan(x) ? -INFINITY : x, isnan(x) ? NAN : 1});
}

/* A block at a time: its largest x, then the exponentials, then their sum. */
static ALWAYS_INLINE void exponentials_fold_of(double *state, const float *x, int64_t n)
{
    for (int64_t at = 0; at < n; at += REF_BLOCK) {
        double e[REF_BLOCK];
        int64_t part = n - at < REF_BLOCK ? n - at : REF_BLOCK;
        double m = ref_largest_number(x + at, part);
        for (int64_t i = 0; i < part; i++) {
            double y = x[at + i];
            e[i] = y == m ? 1 : fast_exp(y - m);
        }
        exponentials_merge(state, (double[]){m, ref_sum_of(e, part)});
    }
}
REFERENCE_FOLD(exponentials_fold)

#endif
