/* exp_sub_grad_l.c -- the derivative of exp(x - l) by l, -exp(x - l). */
#include "elementary.h"
#include "ref.h"

REFERENCE_MAP(exp_sub_grad_l) { return -ref_exp(in[0] - in[1]); }
