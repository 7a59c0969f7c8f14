/* m2.c -- the sum over a row of (x - mean)^2, online. */
#include "moments.h"

static double finish(const double *state) { return state[2]; }
REFERENCE_REDUCE(m2) = {moments_init, moments_push, moments_merge, finish, moments_fold};
