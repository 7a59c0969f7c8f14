/* log_sum_exp.c -- log(sum of e^x over a row), online. */
#include "exponentials.h"

static double finish(const double *state) { return state[0] + log(state[1]); }
REFERENCE_REDUCE(log_sum_exp) = {exponentials_init, exponentials_push, exponentials_merge, finish,
                                 exponentials_fold};
