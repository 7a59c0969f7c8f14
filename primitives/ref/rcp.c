/* rcp.c -- 1 / x. */
#include "ref.h"

REFERENCE_MAP(rcp) { return 1 / in[0]; }
