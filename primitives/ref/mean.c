/* mean.c -- the mean of a row, 0 if it is empty, NaN if it holds inf or NaN. */
#include <math.h>

#include "moments.h"

static double finish(const double *state) { return isfinite(state[1]) ? state[1] : NAN; }
REFERENCE_REDUCE(mean) = {moments_init, moments_push, moments_merge, finish, moments_fold};
