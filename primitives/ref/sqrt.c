/* sqrt.c -- the square root of x, as IEEE rounds it; NaN of what is below 0. */
#include <math.h>

#include "ref.h"

REFERENCE_MAP(sqrt) { return sqrt(in[0]); }
