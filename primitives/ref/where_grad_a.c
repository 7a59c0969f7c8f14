/* where_grad_a.c -- the derivative of where by a: 1 where the condition is not 0, else 0. */
#include "ref.h"

REFERENCE_MAP(where_grad_a) { return in[0] != 0; }
