/* rsqrt.c -- 1 / sqrt(x). */
#include <math.h>

#include "ref.h"

REFERENCE_MAP(rsqrt) { return 1 / sqrt(in[0]); }
