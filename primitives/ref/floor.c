/* floor.c -- the largest integer that is not above x. */
#include <math.h>

#include "ref.h"

REFERENCE_MAP(floor) { return floor(in[0]); }
