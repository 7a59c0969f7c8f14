/* silu.c -- x sigmoid(x), also called swish. */
#include <math.h>

#include "ref.h"

REFERENCE_MAP(silu) { return in[0] / (1 + exp(-in[0])); }
