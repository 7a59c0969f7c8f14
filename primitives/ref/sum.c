/* sum.c -- the sum of a row, 0 if it is empty. */
#include "lanes.h"

static void init(double *state) { state[0] = 0; }
static void push(double *state, double x, UNUSED int64_t col, UNUSED double key) { state[0] += x; }
static void merge(double *state, const double *other) { state[0] += other[0]; }
static double finish(const double *state) { return state[0]; }
static ALWAYS_INLINE void fold_of(double *state, const float *x, int64_t n)
{
    state[0] += ref_sum(x, n, 0, false);
}
REFERENCE_FOLD(fold)
REFERENCE_REDUCE(sum) = {init, push, merge, finish, fold};
