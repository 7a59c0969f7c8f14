/* greater_equal.c -- 1 where x is not below y, else 0, as where one is NaN. */
#include "ref.h"

REFERENCE_MAP(greater_equal) { return in[0] >= in[1]; }
