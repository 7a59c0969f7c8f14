/* glu.c -- sigmoid(gate) up. */
#include "elementary.h"
#include "ref.h"

REFERENCE_MAP(glu) { return in[1] / (1 + ref_exp(-in[0])); }
