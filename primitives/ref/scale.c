/* scale.c -- alpha x. */
#include "ref.h"

REFERENCE_MAP(scale) { return params[0] * in[0]; }
