/* where.c -- a where the condition is not 0, else b, whatever the other one is. NaN is not 0. */
#include "ref.h"

REFERENCE_MAP(where) { return in[0] != 0 ? in[1] : in[2]; }
