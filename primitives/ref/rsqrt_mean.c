/* rsqrt_mean.c -- 1 / sqrt(s inv_n + eps), the factor of a normalisation from a row's sum of squares s; NaN
 * for an infinite sum. */
#include <math.h>

#include "ref.h"

REFERENCE_MAP(rsqrt_mean) { return isinf(in[0]) ? NAN : 1 / sqrt(in[0] * params[0] + params[1]); }
