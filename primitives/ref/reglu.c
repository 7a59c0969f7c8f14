/* reglu.c -- relu(gate) up. */
#include "ref.h"

REFERENCE_MAP(reglu) { return (in[0] < 0 ? 0 : in[0]) * in[1]; }
