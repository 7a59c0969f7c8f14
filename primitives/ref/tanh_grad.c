/* tanh_grad.c -- the derivative of tanh, 1 - tanh(x)^2 = 4 e / (1 + e)^2 with e = exp(-2 |x|). */
#include <math.h>

#include "elementary.h"
#include "ref.h"

REFERENCE_MAP(tanh_grad)
{
    double e = ref_exp(-2 * fabs(in[0]));
    return 4 * e / ((1 + e) * (1 + e));
}
