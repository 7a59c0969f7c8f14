/* philox.h -- random words by a counter: Philox4x32-10 (Salmon et al., SC 2011), as the paper has it. */
#ifndef PHILOX_H
#define PHILOX_H

#include <stdint.h>

/* Ten rounds on the counter, which becomes the random words. */
static inline void philox(uint32_t word[4], const uint32_t key[2])
{
    uint32_t k0 = key[0], k1 = key[1];
    for (int round = 0; round < 10; round++) {
        uint64_t a = (uint64_t)0xd2511f53 * word[0], b = (uint64_t)0xcd9e8d57 * word[2];
        uint32_t next[4] = {(uint32_t)(b >> 32) ^ word[1] ^ k0, (uint32_t)b,
                            (uint32_t)(a >> 32) ^ word[3] ^ k1, (uint32_t)a};
        for (int i = 0; i < 4; i++) word[i] = next[i];
        k0 += 0x9e3779b9;
        k1 += 0xbb67ae85;
    }
}

#endif
