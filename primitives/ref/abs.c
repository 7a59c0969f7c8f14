/* abs.c -- |x|. */
#include <math.h>

#include "ref.h"

REFERENCE_MAP(abs) { return fabs(in[0]); }
