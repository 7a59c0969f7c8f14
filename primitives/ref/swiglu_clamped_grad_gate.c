/* swiglu_clamped_grad_gate.c -- the derivative of swiglu_clamped by gate, (u + 1) s (1 + a (1 - s)). */
#include "elementary.h"
#include "ref.h"

REFERENCE_MAP(swiglu_clamped_grad_gate)
{
    double most = params[1] < 0 ? -params[1] : params[1];
    double up = in[1] < -most ? -most : in[1], u = up > most ? most : up, a = params[0] * in[0];
    a = a > 150 ? 150 : a < -150 ? -150 : a; /* beyond, s (1 + a (1 - s)) is 1 or 0 */
    double s = 1 / (1 + ref_exp(-a));
    return in[0] > most ? 0 : (u + 1) * s * (1 + a * (1 - s));
}
