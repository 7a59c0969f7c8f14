/* mul.c -- x y. */
#include "ref.h"

REFERENCE_MAP(mul) { return in[0] * in[1]; }
