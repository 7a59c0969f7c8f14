/* minimum.c -- the smaller one; NaN if either is. */
#include <math.h>

#include "ref.h"

REFERENCE_MAP(minimum) { return isnan(in[0]) || in[0] < in[1] ? in[0] : in[1]; }
