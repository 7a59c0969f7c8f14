/*
 * name.c -- cache/name.c with four bits: of every sixteen keys two meet in every place that finds by a
 * digest. Linked before the library it takes the place of the real one; jobs.mk says what runs with it.
 */
#include "cache.h"

struct digest name_of(const void *a, size_t a_size, const void *b, size_t b_size)
{
    struct digest d = digest_of_two(a, a_size, b, b_size);
    uint64_t bits = (d.word[0] ^ d.word[1] ^ d.word[2] ^ d.word[3]) >> 60;
    return (struct digest){{bits << 60, 0, 0, bits}};
}
