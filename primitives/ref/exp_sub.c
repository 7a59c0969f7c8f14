/* exp_sub.c -- exp(x - l), a softmax from its log_sum_exp l. */
#include <math.h>

#include "ref.h"

REFERENCE_MAP(exp_sub) { return exp(in[0] - in[1]); }
