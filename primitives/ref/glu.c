/* glu.c -- sigmoid(gate) up. */
#include <math.h>

#include "ref.h"

REFERENCE_MAP(glu) { return in[1] / (1 + exp(-in[0])); }
