/* arg_max.c -- the column of a row's largest element, the first of several; the first NaN's if there is one.
 * -1 if the row is empty. */
#include <math.h>

#include "ref.h"

static bool better(double x, double y) { return isnan(x) ? !isnan(y) : x > y; }

static void init(double *state)
{
    state[0] = -INFINITY;
    state[1] = -1;
}

static void take(double *state, double x, double col)
{
    bool first = state[1] < 0 || better(x, state[0]);
    if (!first && (better(state[0], x) || col > state[1])) return;
    state[0] = x;
    state[1] = col;
}

static void push(double *state, double x, int64_t col, UNUSED double key) { take(state, x, (double)col); }

static void merge(double *state, const double *other)
{
    if (other[1] >= 0) take(state, other[0], other[1]);
}

static double finish(const double *state) { return state[1]; }
REFERENCE_REDUCE(arg_max) = {init, push, merge, finish};
