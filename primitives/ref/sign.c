/* sign.c -- 1 of what is above 0, -1 of what is below; 0 and NaN stay. */
#include "ref.h"

REFERENCE_MAP(sign) { return in[0] > 0 ? 1 : in[0] < 0 ? -1 : in[0]; }
