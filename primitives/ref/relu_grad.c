/* relu_grad.c -- the derivative of relu: 1 where x is above 0, else 0, also at 0. NaN stays. */
#include "ref.h"

REFERENCE_MAP(relu_grad) { return in[0] > 0 ? 1 : in[0] <= 0 ? 0 : in[0]; }
