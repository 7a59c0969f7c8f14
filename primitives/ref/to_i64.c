/* to_i64.c -- x towards zero, as int64 holds it; NaN is 0. */
#include <math.h>

#include "ref.h"

REFERENCE_MAP(to_i64)
{
    if (isnan(in[0])) return 0;
    return trunc(fmax(-0x1p63, fmin(0x1p63, in[0])));
}
