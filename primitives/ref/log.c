/* log.c -- the natural logarithm of x: -inf of 0, NaN of what is below. */
#include <math.h>

#include "ref.h"

REFERENCE_MAP(log) { return log(in[0]); }
