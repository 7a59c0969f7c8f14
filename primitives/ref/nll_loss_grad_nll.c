/* nll_loss_grad_nll.c -- the derivative of nll_loss by nll: 1, 0 if ignored, NaN without a class. */
#include <math.h>

#include "ref.h"

REFERENCE_MAP(nll_loss_grad_nll)
{
    double target = in[1];
    if (target == params[0]) return 0;
    return 0 <= target && target < params[1] ? 1 : NAN;
}
