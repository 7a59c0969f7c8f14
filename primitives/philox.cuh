// philox.cuh -- random words by a counter: Philox4x32-10 (Salmon et al., "Parallel random numbers: as easy as
// 1, 2, 3", SC 2011). Equal counters and keys give equal words, whoever asks, and in whatever order.
#pragma once
#include "types.cuh"

namespace coda {

struct Philox {
    u32 word[4];

    DEV Philox(u32 c0, u32 c1, u32 c2, u32 c3, u32 key0, u32 key1) : word{c0, c1, c2, c3}
    {
#pragma unroll
        for (i32 round = 0; round < 10; round++, key0 += 0x9e3779b9u, key1 += 0xbb67ae85u) {
            const u64 a = (u64)0xd2511f53u * word[0], b = (u64)0xcd9e8d57u * word[2];
            word[0] = (u32)(b >> 32) ^ word[1] ^ key0;
            word[1] = (u32)b;
            word[2] = (u32)(a >> 32) ^ word[3] ^ key1;
            word[3] = (u32)a;
        }
    }
};

} // namespace coda
