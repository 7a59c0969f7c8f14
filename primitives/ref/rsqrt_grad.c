/* rsqrt_grad.c -- the derivative of rsqrt, -y^3 / 2 with y = 1 / sqrt(x). */
#include <math.h>

#include "ref.h"

REFERENCE_MAP(rsqrt_grad)
{
    double y = 1 / sqrt(in[0]);
    return -0.5 * y * y * y;
}
