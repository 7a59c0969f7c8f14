// tile_parts.cuh -- what warpgroups of several blocks have summed of one tile, each over a part of its keys
// (tile_walk.cuh), is joined by that of the block that owns it.
//
// The others leave in memory their sums, as the fragments that they are, and what their rows count weights
// from, with a flag behind them. The owner adds these in the order of keys: which sums there are depends on
// the shape and the number of blocks alone. It waits for blocks of lower numbers, which began before it did.
// Before the launch memory holds anything but a flag, that is, by chance 128 bits; behind it, no flag.
#pragma once
#include "attention/online_softmax.cuh"
#include "attention/tile_walk.cuh"
#include "ptx/barrier.cuh"
#include "ptx/system.cuh"
#include "tile/resources.cuh"

namespace coda {

// Of n sums of a thread.
template <class Config, i32 n> struct TileParts {
    static constexpr i32 numbers = (n + 4) * 128; // of a warpgroup

    u8 *memory;
    KeyDeal deal;
    i32 group;

    DEV float *sums(i32 place) const
    {
        return reinterpret_cast<float *>(memory) + (place * Config::groups + group) * numbers +
               threadIdx.x % 128;
    }
    DEV u8 *flag(i32 place) const
    {
        return memory + (i64)deal.walkers * Config::groups * numbers * 4 +
               (place * Config::groups + group) * 16;
    }
    DEV static ptx::Words raised() { return {{0x9e3779b9u, 0x243f6a88u, 0xb7e15162u, 0x6a09e667u}}; }
    DEV static bool is_raised(const ptx::Words &w)
    {
        const ptx::Words r = raised();
        return w.at[0] == r.at[0] && w.at[1] == r.at[1] && w.at[2] == r.at[2] && w.at[3] == r.at[3];
    }
    DEV void meet() const { ptx::named_barrier(barrier_group + group, 128); }

    DEV void leave(const float (&out)[n], const OnlineSoftmax &softmax, i32 place) const
    {
        float *const to = sums(place);
#pragma unroll
        for (i32 i = 0; i < n; i++) to[i * 128] = out[i];
#pragma unroll
        for (i32 r = 0; r < 2; r++)
            to[(n + r) * 128] = softmax.max[r], to[(n + 2 + r) * 128] = softmax.sum[r];
        meet();
        if (threadIdx.x % 128) return;
        ptx::fence_device();
        ptx::store_device(flag(place), raised());
    }
    // One warp waits.
    DEV void await(i32 first, i32 end) const
    {
        if (threadIdx.x % 128 < 32) {
            for (i32 q = first + threadIdx.x % 32; q < end; q += 32) {
                if (!deal.has_some(q)) continue;
                while (!is_raised(ptx::load_device(flag(q)))) {}
                ptx::store_device(flag(q), {{0, 0, 0, 0}});
            }
            __syncwarp();
            ptx::fence_device();
        }
        meet();
    }
    DEV void add(float (&out)[n], OnlineSoftmax &softmax, i32 place) const
    {
        const float *const from = sums(place);
        float mine[2], theirs[2];
#pragma unroll
        for (i32 r = 0; r < 2; r++) {
            const float max = ptx::load_float_device(from + (n + r) * 128);
            const float sum = ptx::load_float_device(from + (n + 2 + r) * 128);
            const float most = fmaxf(softmax.max[r], max);
            mine[r] = factor(softmax.max[r], most), theirs[r] = factor(max, most);
            softmax.max[r] = most;
            softmax.sum[r] = fmaf(softmax.sum[r], mine[r], sum * theirs[r]);
        }
#pragma unroll
        for (i32 i = 0; i < n; i++) {
            const i32 r = i >> 1 & 1;
            out[i] = fmaf(out[i], mine[r], ptx::load_float_device(from + i * 128) * theirs[r]);
        }
    }
    DEV static float factor(float max, float most)
    {
        return most == unseen() ? 0.0f : math::exp2(Score<Config>::exponent * (max - most));
    }

    // Of a part: is it the owner's, which has the sums over all keys then?
    DEV bool join(float (&out)[n], OnlineSoftmax &softmax, i32 place, i32 piece) const
    {
        const i32 first = deal.part(place, piece).first;
        if (first % deal.blocks) {
            leave(out, softmax, place);
            return false;
        }
        i32 end = place + 1; // of the places that have the tile's other keys
        while (deal.begin(end) < first + deal.blocks) end++;
        await(place + 1, end);
#pragma unroll 1
        for (i32 q = place + 1; q < end; q++)
            if (deal.has_some(q)) add(out, softmax, q);
        return true;
    }
};

} // namespace coda
