/* top_4.c -- the 4 largest elements of a row, with their columns: the fourth. */
#include "best.h"

static void init(double *state) { best_init(state, 4); }
static void push(double *state, double x, int64_t col, UNUSED double key)
{
    best_push(state, 4, x, (double)col);
}
static void merge(double *state, const double *other) { best_merge(state, 4, other); }
static double finish(const double *state) { return state[2 * 4 - 2]; }
REFERENCE_REDUCE(top_4) = {init, push, merge, finish};
