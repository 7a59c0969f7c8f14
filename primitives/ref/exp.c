/* exp.c -- e^x. */
#include <math.h>

#include "ref.h"

REFERENCE_MAP(exp) { return exp(in[0]); }
