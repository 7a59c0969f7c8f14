/* ceil.c -- the least integer that is not below x. */
#include <math.h>

#include "ref.h"

REFERENCE_MAP(ceil) { return ceil(in[0]); }
