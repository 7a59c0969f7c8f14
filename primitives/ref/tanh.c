/* tanh.c -- the hyperbolic tangent of x. */
#include "elementary.h"
#include "ref.h"

REFERENCE_MAP(tanh) { return ref_tanh(in[0]); }
