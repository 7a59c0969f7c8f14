/* to_f8e4m3.c -- x rounded to 4 significant bits, ties to even, up to 448; a step below 2^-6 is 2^-9. */
#include <math.h>

#include "ref.h"

REFERENCE_MAP(to_f8e4m3)
{
    int exponent;
    if (isnan(in[0]) || in[0] == 0) return in[0];
    if (fabs(in[0]) >= 448) return copysign(448, in[0]);
    frexp(in[0], &exponent);
    double step = ldexp(1, (exponent > -5 ? exponent : -5) - 4);
    return rint(in[0] / step) * step;
}
