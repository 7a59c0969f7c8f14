/* to_f16.c -- x rounded to 11 significant bits, ties to even; subnormals have fewer. */
#include <math.h>

#include "ref.h"

REFERENCE_MAP(to_f16)
{
    int exponent;
    if (!isfinite(in[0]) || in[0] == 0) return in[0];
    frexp(in[0], &exponent);
    double step = ldexp(1, (exponent > -13 ? exponent : -13) - 11), y = rint(in[0] / step) * step;
    return fabs(y) >= 0x1p16 ? copysign(INFINITY, y) : y;
}
