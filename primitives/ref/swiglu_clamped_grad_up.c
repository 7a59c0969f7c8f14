/* swiglu_clamped_grad_up.c -- the derivative of swiglu_clamped by up, g sigmoid(alpha g). */
#include "elementary.h"
#include "ref.h"

REFERENCE_MAP(swiglu_clamped_grad_up)
{
    double most = params[1] < 0 ? -params[1] : params[1], g = in[0] > most ? most : in[0];
    double inside = in[1] < -most || in[1] > most ? 0 : in[1] == in[1] ? 1 : in[1];
    return inside * (g / (1 + ref_exp(-(params[0] * g))));
}
