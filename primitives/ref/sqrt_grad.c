/* sqrt_grad.c -- the derivative of sqrt, 1 / (2 sqrt(x)). */
#include <math.h>

#include "ref.h"

REFERENCE_MAP(sqrt_grad) { return 0.5 / sqrt(in[0]); }
