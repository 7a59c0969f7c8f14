/* less.c -- 1 where x is below y, else 0, as where one is NaN. */
#include "ref.h"

REFERENCE_MAP(less) { return in[0] < in[1]; }
