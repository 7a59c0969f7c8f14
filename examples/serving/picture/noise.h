/*
 * noise.h -- normal numbers of a seed, the same on every machine.
 *
 * Numbers 4 j to 4 j + 3 of picture n are those of Philox4x32-10 (Salmon et al., "Parallel random numbers: as
 * easy as 1, 2, 3", SC 2011) of the counter (j, n, 0, 0) under the key (low, high half of the seed), by Box
 * and Muller (1958): of words a, b and of c, d each two,
 *     sqrt(-2 log((a + 1/2) / 2^32)) times cos and sin of 2 pi b / 2^32.
 */
#ifndef NOISE_H
#define NOISE_H

#include <stdint.h>

void noise_fill(uint64_t seed, uint32_t picture, int64_t count, float *to);

#endif
