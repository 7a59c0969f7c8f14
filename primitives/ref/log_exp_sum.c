/* log_exp_sum.c -- log(sum over a row of e^(x - m)), m its largest x; -inf if it is empty or holds -inf
 * alone. */
#include "exponentials.h"

static double finish(const double *state)
{
    if (isnan(state[1]) || state[0] == INFINITY) return NAN;
    return state[0] == -INFINITY ? -INFINITY : log(state[1]);
}
REFERENCE_REDUCE(log_exp_sum) = {exponentials_init, exponentials_push, exponentials_merge, finish,
                                 exponentials_fold};
