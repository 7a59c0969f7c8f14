/* digest.c -- 256 bits of anything: two XXH3-128 of different seeds, side by side. */
#include "cache.h"

#include <string.h>

#define XXH_INLINE_ALL
#include <xxhash.h>

static const uint64_t seed[2] = {0, 0x9e3779b97f4a7c15u};

static struct digest join(XXH128_hash_t a, XXH128_hash_t b)
{
    return (struct digest){{a.high64, a.low64, b.high64, b.low64}};
}

struct digest digest_of(const void *data, size_t size)
{
    if (!size) data = "";
    return join(XXH3_128bits_withSeed(data, size, seed[0]), XXH3_128bits_withSeed(data, size, seed[1]));
}

static XXH128_hash_t hash_two(const void *a, size_t a_size, const void *b, size_t b_size, uint64_t s)
{
    XXH3_state_t state;
    XXH3_INITSTATE(&state);
    XXH3_128bits_reset_withSeed(&state, s);
    if (a_size) XXH3_128bits_update(&state, a, a_size);
    if (b_size) XXH3_128bits_update(&state, b, b_size);
    return XXH3_128bits_digest(&state);
}

struct digest digest_of_two(const void *a, size_t a_size, const void *b, size_t b_size)
{
    return join(hash_two(a, a_size, b, b_size, seed[0]), hash_two(a, a_size, b, b_size, seed[1]));
}

bool digest_equal(const struct digest *a, const struct digest *b)
{
    uint64_t differ = 0;
    for (int i = 0; i < 4; i++) differ |= a->word[i] ^ b->word[i];
    return !differ;
}

void digest_hex(char out[DIGEST_HEX], const struct digest *d)
{
    static const char digit[] = "0123456789abcdef";
    for (int i = 0; i < DIGEST_HEX - 1; i++) out[i] = digit[d->word[i / 16] >> (60 - i % 16 * 4) & 15];
    out[DIGEST_HEX - 1] = 0;
}
