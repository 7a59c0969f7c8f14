/* geglu.c -- gelu_tanh(gate) up. */
#include "elementary.h"
#include "ref.h"

REFERENCE_MAP(geglu)
{
    double x = in[0], u = 0.79788456080286535588 * (x + 0.044715 * x * x * x);
    return x / (1 + ref_exp(-2 * u)) * in[1];
}
