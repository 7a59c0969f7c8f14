// scan.cuh -- block scans: what the threads before each one have, added up.
#pragma once
#include "types.cuh"

namespace coda {

// The sum of x over the lanes up to this one. All lanes of the warp take part.
DEV u32 scan_lanes(u32 x)
{
    const u32 lane = threadIdx.x % 32;
#pragma unroll
    for (u32 distance = 1; distance < 32; distance *= 2) {
        const u32 other = __shfl_sync(~0u, x, lane >= distance ? lane - distance : lane);
        x += lane >= distance ? other : 0;
    }
    return x;
}

// The sum of x over the threads up to this one, and `all` over those of the block, of which there are
// 32 * warps. `shared` is not free again before the next barrier.
template <i32 warps> DEV u32 scan_warps(u32 x, u32 &all, u32 (&shared)[warps])
{
    const u32 warp = threadIdx.x / 32;
    u32 sum = scan_lanes(x);
    if (threadIdx.x % 32 == 31) shared[warp] = sum;
    __syncthreads();
    all = 0;
#pragma unroll
    for (u32 w = 0; w < warps; w++) {
        sum += w < warp ? shared[w] : 0;
        all += shared[w];
    }
    return sum;
}

} // namespace coda
