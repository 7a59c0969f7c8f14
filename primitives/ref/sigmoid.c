/* sigmoid.c -- 1 / (1 + exp(-x)). */
#include "elementary.h"
#include "ref.h"

REFERENCE_MAP(sigmoid) { return 1 / (1 + ref_exp(-in[0])); }
