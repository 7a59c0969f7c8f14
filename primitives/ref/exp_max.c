/* exp_max.c -- the largest element of a row, -inf if it is empty, NaN if it holds one. */
#include "exponentials.h"

static double finish(const double *state) { return isnan(state[1]) ? NAN : state[0]; }
REFERENCE_REDUCE(exp_max) = {exponentials_init, exponentials_push, exponentials_merge, finish,
                             exponentials_fold};
