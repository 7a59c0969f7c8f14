/*
 * hash.c -- of bytes, for tables of this process: nothing is kept under it, and nobody chooses the keys.
 *
 * Four chains of words, since one multiplication after the other would have to be waited for.
 */
#include "base.h"

#include <string.h>

enum { CHAINS = 4 };

static inline uint64_t mix(uint64_t h, uint64_t word)
{
    h = (h ^ word) * 0x9e3779b97f4a7c15u;
    return h ^ h >> 32;
}

static inline uint64_t word_at(const unsigned char *at, size_t bytes)
{
    uint64_t word = 0;
    memcpy(&word, at, bytes);
    return word;
}

uint64_t hash_of(const void *data, size_t size)
{
    const unsigned char *at = data;
    uint64_t chain[CHAINS] = {size, 1, 2, 3}, h = 0;
    for (; size >= sizeof chain; at += sizeof chain, size -= sizeof chain)
        for (int i = 0; i < CHAINS; i++) chain[i] = mix(chain[i], word_at(at + 8 * i, 8));
    for (; size; at += MIN(size, 8), size -= MIN(size, 8))
        chain[0] = mix(chain[0], word_at(at, MIN(size, 8)));
    for (int i = 0; i < CHAINS; i++) h = mix(h, chain[i]);
    return h;
}
