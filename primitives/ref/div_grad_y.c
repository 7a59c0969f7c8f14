/* div_grad_y.c -- the derivative of x / y by y, -x / y^2. */
#include "ref.h"

REFERENCE_MAP(div_grad_y) { return -(in[0] / in[1]) / in[1]; }
