/* softcap_grad.c -- the derivative of softcap, 1 - tanh(x / cap)^2. */
#include <math.h>

#include "elementary.h"
#include "ref.h"

REFERENCE_MAP(softcap_grad)
{
    double e = ref_exp(-2 * fabs(in[0] / params[0]));
    return 4 * e / ((1 + e) * (1 + e));
}
