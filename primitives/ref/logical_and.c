/* logical_and.c -- 1 where neither x nor y is 0, else 0. NaN is not 0. */
#include "ref.h"

REFERENCE_MAP(logical_and) { return in[0] != 0 && in[1] != 0; }
