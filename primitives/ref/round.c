/* round.c -- the integer nearest to x, of two the even one. */
#include <math.h>

#include "ref.h"

REFERENCE_MAP(round) { return rint(in[0]); }
