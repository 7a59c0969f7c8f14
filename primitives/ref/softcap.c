/* softcap.c -- cap tanh(x / cap). */
#include "elementary.h"
#include "ref.h"

REFERENCE_MAP(softcap) { return params[0] * ref_tanh(in[0] / params[0]); }
