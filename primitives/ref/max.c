/* max.c -- the largest element of a row, -inf if it is empty, NaN if it holds one. */
#include <math.h>

#include "lanes.h"

static void init(double *state) { state[0] = -INFINITY; }
static void push(double *state, double x, UNUSED int64_t col, UNUSED double key)
{
    if (x > state[0] || isnan(x)) state[0] = x;
}

static void merge(double *state, const double *other) { push(state, other[0], 0, 0); }
static double finish(const double *state) { return state[0]; }
static ALWAYS_INLINE void fold_of(double *state, const float *x, int64_t n)
{
    push(state, ref_largest(x, n), 0, 0);
}
REFERENCE_FOLD(fold)
REFERENCE_REDUCE(max) = {init, push, merge, finish, fold};
