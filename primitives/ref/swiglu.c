/* swiglu.c -- silu(gate) up. */
#include <math.h>

#include "ref.h"

REFERENCE_MAP(swiglu) { return in[0] / (1 + exp(-in[0])) * in[1]; }
