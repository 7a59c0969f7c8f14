/* exp.c -- e^x. */
#include "elementary.h"
#include "ref.h"

REFERENCE_MAP(exp) { return ref_exp(in[0]); }
