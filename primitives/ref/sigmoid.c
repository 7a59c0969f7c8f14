/* sigmoid.c -- 1 / (1 + exp(-x)). */
#include <math.h>

#include "ref.h"

REFERENCE_MAP(sigmoid) { return 1 / (1 + exp(-in[0])); }
