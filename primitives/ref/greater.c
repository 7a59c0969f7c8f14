/* greater.c -- 1 where x is above y, else 0, as where one is NaN. */
#include "ref.h"

REFERENCE_MAP(greater) { return in[0] > in[1]; }
