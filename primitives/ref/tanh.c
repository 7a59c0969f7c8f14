/* tanh.c -- the hyperbolic tangent of x. */
#include <math.h>

#include "ref.h"

REFERENCE_MAP(tanh) { return tanh(in[0]); }
