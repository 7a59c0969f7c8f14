/* softcap.c -- cap tanh(x / cap). */
#include <math.h>

#include "ref.h"

REFERENCE_MAP(softcap) { return params[0] * tanh(in[0] / params[0]); }
