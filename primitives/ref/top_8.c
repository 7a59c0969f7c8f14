/* top_8.c -- the 8 largest elements of a row, with their columns: the eighth. */
#include "best.h"

static void init(double *state) { best_init(state, 8); }
static void push(double *state, double x, int64_t col, UNUSED double key)
{
    best_push(state, 8, x, (double)col);
}
static void merge(double *state, const double *other) { best_merge(state, 8, other); }
static double finish(const double *state) { return state[2 * 8 - 2]; }
REFERENCE_REDUCE(top_8) = {init, push, merge, finish};
