/* swiglu_clamped.c -- (u + 1) g sigmoid(alpha g), gate at most |limit|, up within it. */
#include <math.h>

#include "elementary.h"
#include "ref.h"

REFERENCE_MAP(swiglu_clamped)
{
    double alpha = params[0], limit = fabs(params[1]), g = in[0] > limit ? limit : in[0];
    double u = in[1] < -limit ? -limit : in[1] > limit ? limit : in[1];
    return (u + 1) * (g / (1 + ref_exp(-alpha * g)));
}
