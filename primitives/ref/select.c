/* select.c -- the element of a row whose column is `key`, 0 if there is none. */
#include "ref.h"

static void init(double *state) { state[0] = 0; }
static void push(double *state, double x, int64_t col, double key)
{
    if ((double)col == key) state[0] = x;
}

static void merge(double *state, const double *other) { state[0] += other[0]; }
static double finish(const double *state) { return state[0]; }
REFERENCE_REDUCE(select) = {init, push, merge, finish};
