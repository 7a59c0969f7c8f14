/* rsqrt_mean_grad.c -- the derivative of rsqrt_mean, -inv_n y^3 / 2 with y = 1 / sqrt(s inv_n + eps). */
#include <math.h>

#include "ref.h"

REFERENCE_MAP(rsqrt_mean_grad)
{
    double y = 1 / sqrt(in[0] * params[0] + params[1]);
    return isinf(in[0]) ? NAN : -0.5 * params[0] * y * y * y;
}
