/* clip.c -- x, but at least low and at most high; high where they cross. */
#include "ref.h"

REFERENCE_MAP(clip)
{
    double y = in[0] < params[0] ? params[0] : in[0];
    return y > params[1] ? params[1] : y;
}
