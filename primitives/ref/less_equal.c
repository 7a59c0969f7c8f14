/* less_equal.c -- 1 where x is not above y, else 0, as where one is NaN. */
#include "ref.h"

REFERENCE_MAP(less_equal) { return in[0] <= in[1]; }
