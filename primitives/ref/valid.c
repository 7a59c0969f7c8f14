/* valid.c -- 1 if the target counts, 0 if it is ignored. */
#include "ref.h"

REFERENCE_MAP(valid) { return in[0] == params[0] ? 0 : 1; }
