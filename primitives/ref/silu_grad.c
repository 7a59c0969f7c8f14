/* silu_grad.c -- the derivative of silu, s (1 + x (1 - s)) with s = sigmoid(x). */
#include "elementary.h"
#include "ref.h"

REFERENCE_MAP(silu_grad)
{
    double x = in[0], s = 1 / (1 + ref_exp(-x));
    return s * (1 + x * (1 - s));
}
