/* geglu_erf.c -- gelu_erf(gate) up. */
#include "elementary.h"
#include "ref.h"

REFERENCE_MAP(geglu_erf) { return in[0] * 0.5 * ref_erfc(-in[0] * 0.70710678118654752440) * in[1]; }
