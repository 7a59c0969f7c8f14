/* bytes.c -- numbers and digests as bytes, little-endian. */
#include "inside.h"

void bytes_put(unsigned char *p, uint64_t x, int n)
{
    for (int i = 0; i < n; i++) p[i] = (unsigned char)(x >> 8 * i);
}

uint64_t bytes_get(const unsigned char *p, int n)
{
    uint64_t x = 0;
    for (int i = 0; i < n; i++) x |= (uint64_t)p[i] << 8 * i;
    return x;
}

void bytes_put_digest(unsigned char *p, const struct digest *d)
{
    for (int i = 0; i < 4; i++) bytes_put(p + 8 * i, d->word[i], 8);
}

struct digest bytes_get_digest(const unsigned char *p)
{
    struct digest d;
    for (int i = 0; i < 4; i++) d.word[i] = bytes_get(p + 8 * i, 8);
    return d;
}
