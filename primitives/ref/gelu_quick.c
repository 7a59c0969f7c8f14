/* gelu_quick.c -- x sigmoid(1.702 x). */
#include "elementary.h"
#include "ref.h"

REFERENCE_MAP(gelu_quick) { return in[0] / (1 + ref_exp(-1.702 * in[0])); }
