/* max.c -- the largest element of a row, -inf if it is empty, NaN if it holds one. */
#include <math.h>

#include "ref.h"

static void init(double *state) { state[0] = -INFINITY; }
static void push(double *state, double x, UNUSED int64_t col, UNUSED double key)
{
    if (x > state[0] || isnan(x)) state[0] = x;
}

static void merge(double *state, const double *other) { push(state, other[0], 0, 0); }
static double finish(const double *state) { return state[0]; }
REFERENCE_REDUCE(max) = {init, push, merge, finish};
