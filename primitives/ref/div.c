/* div.c -- x / y. */
#include "ref.h"

REFERENCE_MAP(div) { return in[0] / in[1]; }
