/* softplus.c -- log(1 + exp(x)) = max(x, 0) + log(1 + exp(-|x|)). */
#include <math.h>

#include "elementary.h"
#include "ref.h"

REFERENCE_MAP(softplus)
{
    double x = in[0];
    return (x < 0 ? 0 : x) + log1p(ref_exp(-fabs(x)));
}
