/* top_2.c -- the 2 largest elements of a row, with their columns: the second. */
#include "best.h"

static void init(double *state) { best_init(state, 2); }
static void push(double *state, double x, int64_t col, UNUSED double key)
{
    best_push(state, 2, x, (double)col);
}
static void merge(double *state, const double *other) { best_merge(state, 2, other); }
static double finish(const double *state) { return state[2 * 2 - 2]; }
REFERENCE_REDUCE(top_2) = {init, push, merge, finish};
