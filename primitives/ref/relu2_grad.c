/* relu2_grad.c -- the derivative of relu2, 2 max(x, 0). */
#include "ref.h"

REFERENCE_MAP(relu2_grad) { return in[0] < 0 ? 0 : 2 * in[0]; }
