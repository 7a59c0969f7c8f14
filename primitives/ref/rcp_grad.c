/* rcp_grad.c -- the derivative of rcp, -1 / x^2. */
#include "ref.h"

REFERENCE_MAP(rcp_grad) { return -1 / (in[0] * in[0]); }
