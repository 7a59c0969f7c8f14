/* logical_not.c -- 1 where x is 0, else 0. NaN is not 0. */
#include "ref.h"

REFERENCE_MAP(logical_not) { return in[0] == 0; }
