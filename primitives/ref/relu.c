/* relu.c -- max(x, 0). */
#include "ref.h"

REFERENCE_MAP(relu) { return in[0] < 0 ? 0 : in[0]; }
