/* gelu_tanh_grad.c -- the derivative of gelu_tanh, s (1 + x (1 - s) v) with s = sigmoid(2u), v = 2u'. */
#include "elementary.h"
#include "ref.h"

REFERENCE_MAP(gelu_tanh_grad)
{
    double x = in[0] > 20 ? 20 : in[0] < -20 ? -20 : in[0]; /* beyond, it is 1 or 0 */
    double c = 0.79788456080286535588, u = c * (x + 0.044715 * x * x * x);
    double s = 1 / (1 + ref_exp(-2 * u)), v = 2 * c * (1 + 3 * 0.044715 * x * x);
    return s * (1 + x * (1 - s) * v);
}
