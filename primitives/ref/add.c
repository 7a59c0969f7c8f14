/* add.c -- x + y. */
#include "ref.h"

REFERENCE_MAP(add) { return in[0] + in[1]; }
