/* logical_or.c -- 0 where x and y are 0, else 1. NaN is not 0. */
#include "ref.h"

REFERENCE_MAP(logical_or) { return in[0] != 0 || in[1] != 0; }
