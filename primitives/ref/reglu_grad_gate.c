/* reglu_grad_gate.c -- the derivative of reglu by gate: up where gate is above 0, else 0 up. */
#include "ref.h"

REFERENCE_MAP(reglu_grad_gate) { return (in[0] > 0 ? 1 : in[0] <= 0 ? 0 : in[0]) * in[1]; }
