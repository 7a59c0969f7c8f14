/*
 * noise.c -- the numbers of noise.h.
 */
#include <math.h>

#include "noise.h"

static void philox(uint32_t word[4], uint64_t seed)
{
    uint32_t first = (uint32_t)seed, second = (uint32_t)(seed >> 32);
    for (int round = 0; round < 10; round++) {
        uint64_t a = (uint64_t)0xd2511f53 * word[0], b = (uint64_t)0xcd9e8d57 * word[2];
        word[0] = (uint32_t)(b >> 32) ^ word[1] ^ first;
        word[2] = (uint32_t)(a >> 32) ^ word[3] ^ second;
        word[1] = (uint32_t)b;
        word[3] = (uint32_t)a;
        first += 0x9e3779b9;
        second += 0xbb67ae85;
    }
}

static void pair(const uint32_t word[2], float to[2])
{
    double radius = sqrt(-2 * log((word[0] + 0.5) * 0x1p-32)), turn = 2 * M_PI * word[1] * 0x1p-32;
    to[0] = (float)(radius * cos(turn));
    to[1] = (float)(radius * sin(turn));
}

void noise_fill(uint64_t seed, uint32_t picture, int64_t count, float *to)
{
    float four[4] = {0};
    for (int64_t i = 0; i < count; i++) {
        if (i % 4 == 0) {
            uint32_t word[4] = {(uint32_t)(i / 4), picture, 0, 0};
            philox(word, seed);
            pair(word, four);
            pair(word + 2, four + 2);
        }
        to[i] = four[i % 4];
    }
}
