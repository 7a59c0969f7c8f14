/* nll_loss.c -- a row's cross entropy: its nll, 0 if the row is ignored, NaN if no class has its target. */
#include <math.h>

#include "ref.h"

REFERENCE_MAP(nll_loss)
{
    double target = in[1];
    if (target == params[0]) return 0;
    return 0 <= target && target < params[1] ? in[0] : NAN;
}
