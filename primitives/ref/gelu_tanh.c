/* gelu_tanh.c -- x/2 (1 + tanh u) = x sigmoid(2u), u = sqrt(2 / pi) (x + 0.044715 x^3). */
#include "elementary.h"
#include "ref.h"

REFERENCE_MAP(gelu_tanh)
{
    double x = in[0], u = 0.79788456080286535588 * (x + 0.044715 * x * x * x);
    return x / (1 + ref_exp(-2 * u));
}
