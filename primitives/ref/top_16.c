/* top_16.c -- the 16 largest elements of a row, with their columns: the sixteenth. */
#include "best.h"

static void init(double *state) { best_init(state, 16); }
static void push(double *state, double x, int64_t col, UNUSED double key)
{
    best_push(state, 16, x, (double)col);
}
static void merge(double *state, const double *other) { best_merge(state, 16, other); }
static double finish(const double *state) { return state[2 * 16 - 2]; }
REFERENCE_REDUCE(top_16) = {init, push, merge, finish};
