/* exponential.c -- a number of the exponential distribution, -log(1 - u), u being 64 bits by a counter. */
#include <math.h>

#include "philox.h"
#include "ref.h"

static uint32_t word(double x)
{
    return isnan(x) ? 0 : (uint32_t)(int64_t)trunc(fmax(-0x1p31, fmin(0x1p31 - 1, x)));
}

/* (high 2^32 + low + 1/2) / 2^64 */
static double fraction(uint32_t high, uint32_t low) { return ((high * 0x1p32 + low) + 0.5) * 0x1p-64; }

REFERENCE_MAP(exponential)
{
    uint32_t r[4] = {word(in[0]), word(in[1])}, key[2] = {word(in[2]), word(in[3])};
    philox(r, key);
    return r[0] >> 31 ? -log(fraction(~r[0], ~r[1])) : -log1p(-fraction(r[0], r[1]));
}
