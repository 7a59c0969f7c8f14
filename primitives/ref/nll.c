/* nll.c -- a row's cross entropy: lse - pick, 0 if it is ignored, NaN if no class has its target. */
#include <math.h>

#include "ref.h"

REFERENCE_MAP(nll)
{
    double target = in[2];
    if (target == params[0]) return 0;
    return 0 <= target && target < params[1] ? in[0] - in[1] : NAN;
}
