/* sigmoid_grad.c -- the derivative of sigmoid, s (1 - s) = e / (1 + e)^2 with e = exp(-|x|). */
#include <math.h>

#include "elementary.h"
#include "ref.h"

REFERENCE_MAP(sigmoid_grad)
{
    double e = ref_exp(-fabs(in[0]));
    return e / ((1 + e) * (1 + e));
}
