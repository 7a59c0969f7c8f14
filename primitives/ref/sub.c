/* sub.c -- x - y. */
#include "ref.h"

REFERENCE_MAP(sub) { return in[0] - in[1]; }
