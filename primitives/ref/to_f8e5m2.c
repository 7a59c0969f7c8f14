/* to_f8e5m2.c -- x rounded to 3 significant bits, ties to even; a step below 2^-14 is 2^-16. */
#include <math.h>

#include "ref.h"

REFERENCE_MAP(to_f8e5m2)
{
    int exponent;
    if (isnan(in[0]) || in[0] == 0) return in[0];
    if (fabs(in[0]) >= 61440) return copysign(INFINITY, in[0]);
    frexp(in[0], &exponent);
    double step = ldexp(1, (exponent > -13 ? exponent : -13) - 3);
    return rint(in[0] / step) * step;
}
