/* keep_grad_y.c -- the derivative of keep by y: 1 where x is not below `least`, else 0. */
#include "ref.h"

REFERENCE_MAP(keep_grad_y) { return in[1] < in[2] ? 0 : 1; }
