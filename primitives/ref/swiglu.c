/* swiglu.c -- silu(gate) up. */
#include "elementary.h"
#include "ref.h"

REFERENCE_MAP(swiglu) { return in[0] / (1 + ref_exp(-in[0])) * in[1]; }
