/* geglu_erf_grad_gate.c -- the derivative of geglu_erf by gate, gelu_erf'(gate) up. */
#include "elementary.h"
#include "ref.h"

REFERENCE_MAP(geglu_erf_grad_gate)
{
    double x = in[0], density = 0.39894228040143267794 * ref_exp(-x * x / 2);
    return (0.5 * ref_erfc(-x * 0.70710678118654752440) + x * density) * in[1];
}
