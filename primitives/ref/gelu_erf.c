/* gelu_erf.c -- x P(X <= x) for a normal X, that is x/2 (1 + erf(x / sqrt 2)). */
#include "elementary.h"
#include "ref.h"

REFERENCE_MAP(gelu_erf) { return in[0] * 0.5 * ref_erfc(-in[0] * 0.70710678118654752440); }
