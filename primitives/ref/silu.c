/* silu.c -- x sigmoid(x), also called swish. */
#include "elementary.h"
#include "ref.h"

REFERENCE_MAP(silu) { return in[0] / (1 + ref_exp(-in[0])); }
