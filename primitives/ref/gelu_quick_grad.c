/* gelu_quick_grad.c -- the derivative of gelu_quick, s (1 + c x (1 - s)) with c = 1.702, s = sigmoid(c x). */
#include "elementary.h"
#include "ref.h"

REFERENCE_MAP(gelu_quick_grad)
{
    double x = 1.702 * in[0], s = 1 / (1 + ref_exp(-x));
    return s * (1 + x * (1 - s));
}
