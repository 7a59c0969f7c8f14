/* keep.c -- y where x is not below `least`, else -inf. */
#include <math.h>

#include "ref.h"

REFERENCE_MAP(keep) { return in[1] < in[2] ? -INFINITY : in[0]; }
