/* equal.c -- 1 where x equals y, else 0. NaN equals nothing. */
#include "ref.h"

REFERENCE_MAP(equal) { return in[0] == in[1]; }
