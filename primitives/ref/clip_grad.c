/* clip_grad.c -- the derivative of clip: 1 from low to high, 0 elsewhere. */
#include "ref.h"

REFERENCE_MAP(clip_grad) { return in[0] < params[0] || in[0] > params[1] ? 0 : in[0] == in[0] ? 1 : in[0]; }
