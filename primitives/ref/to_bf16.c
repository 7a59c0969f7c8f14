/* to_bf16.c -- x rounded to 8 significant bits, ties to even; subnormals have fewer. */
#include <math.h>

#include "ref.h"

REFERENCE_MAP(to_bf16)
{
    int exponent;
    if (!isfinite(in[0]) || in[0] == 0) return in[0];
    frexp(in[0], &exponent);
    double step = ldexp(1, (exponent > -125 ? exponent : -125) - 8), y = rint(in[0] / step) * step;
    return fabs(y) >= 0x1p128 ? copysign(INFINITY, y) : y;
}
