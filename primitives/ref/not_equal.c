/* not_equal.c -- 0 where x equals y, else 1. NaN equals nothing. */
#include "ref.h"

REFERENCE_MAP(not_equal) { return in[0] != in[1]; }
