/* gumbel.c -- x and t times a number of the Gumbel distribution, -log(e) of an exponential one. */
#include <math.h>

#include "ref.h"

REFERENCE_MAP(gumbel) { return in[0] - (in[2] < 0 ? 0 : in[2]) * log(in[1]); }
