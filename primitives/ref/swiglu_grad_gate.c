/* swiglu_grad_gate.c -- the derivative of swiglu by gate, silu'(gate) up. */
#include "elementary.h"
#include "ref.h"

REFERENCE_MAP(swiglu_grad_gate)
{
    double x = in[0], s = 1 / (1 + ref_exp(-x));
    return s * (1 + x * (1 - s)) * in[1];
}
