/* nll.c -- log(sum of e^x over a row) - x[target], online; NaN if the row holds inf or NaN, or -inf alone. */
#include "exponentials.h"

static void init(double *state)
{
    exponentials_init(state);
    state[2] = 0;
}

static void push(double *state, double x, int64_t col, double target)
{
    exponentials_push(state, x, col, 0);
    if ((double)col == target) state[2] = x;
}

static void merge(double *state, const double *other)
{
    exponentials_merge(state, other);
    state[2] += other[2];
}

static double finish(const double *state)
{
    if (isnan(state[1]) || state[0] == INFINITY) return NAN;
    return state[0] - state[2] + log(state[1]);
}
REFERENCE_REDUCE(nll) = {init, push, merge, finish};
