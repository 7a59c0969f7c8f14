/* geglu_grad_gate.c -- the derivative of geglu by gate, gelu_tanh'(gate) up. */
#include "elementary.h"
#include "ref.h"

REFERENCE_MAP(geglu_grad_gate)
{
    double x = in[0] > 20 ? 20 : in[0] < -20 ? -20 : in[0]; /* beyond, gelu_tanh' is 1 or 0 */
    double c = 0.79788456080286535588, u = c * (x + 0.044715 * x * x * x);
    double s = 1 / (1 + ref_exp(-2 * u)), v = 2 * c * (1 + 3 * 0.044715 * x * x);
    return s * (1 + x * (1 - s) * v) * in[1];
}
