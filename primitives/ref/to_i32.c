/* to_i32.c -- x towards zero, as int32 holds it; NaN is 0. */
#include <math.h>

#include "ref.h"

REFERENCE_MAP(to_i32)
{
    if (isnan(in[0])) return 0;
    return trunc(fmax(-0x1p31, fmin(0x1p31, in[0])));
}
