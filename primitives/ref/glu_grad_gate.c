/* glu_grad_gate.c -- the derivative of glu by gate, sigmoid'(gate) up. */
#include <math.h>

#include "elementary.h"
#include "ref.h"

REFERENCE_MAP(glu_grad_gate)
{
    double e = ref_exp(-fabs(in[0]));
    return e / ((1 + e) * (1 + e)) * in[1];
}
