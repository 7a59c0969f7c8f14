/* gelu_erf_grad.c -- the derivative of gelu_erf, P(X <= x) + x p(x) for a normal X, p its density. */
#include "elementary.h"
#include "ref.h"

REFERENCE_MAP(gelu_erf_grad)
{
    double x = in[0], density = 0.39894228040143267794 * ref_exp(-x * x / 2);
    return 0.5 * ref_erfc(-x * 0.70710678118654752440) + x * density;
}
