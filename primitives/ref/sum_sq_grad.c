/* sum_sq_grad.c -- the derivative of the sum of squares by one of its elements, 2x. */
#include "ref.h"

REFERENCE_MAP(sum_sq_grad) { return in[0] + in[0]; }
