/* exp_sub.c -- exp(x - l), a softmax's weight before it is divided if l is the row's largest x. */
#include "elementary.h"
#include "ref.h"

REFERENCE_MAP(exp_sub) { return ref_exp(in[0] - in[1]); }
