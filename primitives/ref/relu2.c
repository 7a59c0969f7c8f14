/* relu2.c -- max(x, 0)^2. */
#include "ref.h"

REFERENCE_MAP(relu2)
{
    double r = in[0] < 0 ? 0 : in[0];
    return r * r;
}
