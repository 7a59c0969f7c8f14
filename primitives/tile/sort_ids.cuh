// sort_ids.cuh -- which tokens have each id: a stable counting sort (Knuth, TAOCP 3, 5.2).
//
// A block has a range of ids, and reads all tokens twice: so it needs to hear of no other block. First it
// counts those of lower ids, behind which its own go, and of its own each; then these take their places. A
// warp has a span of tokens and a count of each id, so that the places follow from the tokens alone: those of
// one id are in the order of the spans, and within a span in that of the tokens.
#pragma once
#include "tile/block.cuh"

namespace coda {

template <class Config> struct SortIds {
    typedef typename Config::T T; // i32 or i64
    static constexpr i32 threads = Config::threads, warps = threads / 32;
    static constexpr u32 range = Config::range, each = (range + threads - 1) / threads;
    static constexpr i32 ahead = 8; // loads that do not wait for what came before
    static_assert(threads % 32 == 0 && warps <= 32);

    struct Shared {
        u32 place[warps][range]; // of a warp's tokens of an id: their number, then where the next one goes
        u32 below[warps], own[warps];
    };
    struct Span { // of a warp
        u32 from, to;
    };

    DEV static Span span(u32 tokens)
    {
        const u32 length = (tokens / warps / 32 + 1) * 32, from = threadIdx.x / 32 * length;
        return {from < tokens ? from : tokens, from + length < tokens ? from + length : tokens};
    }
    // Ids of the next `ahead` times 32 tokens; -1 behind the last.
    template <class Args>
    DEV static void read(i64 (&id)[ahead], const Args &a, const T *ids, u32 from, u32 to)
    {
#pragma unroll
        for (i32 i = 0; i < ahead; i++) {
            const u32 token = from + 32 * i + threadIdx.x % 32;
            id[i] = token < to ? (i64)ids[(i64)token * Config::stride(a)] : -1;
        }
    }

    // How many of the warp's tokens have a lower id.
    template <class Args>
    DEV static u32 count(const Args &a, const T *ids, Span s, u32 first, u32 n, Shared &shared)
    {
        u32 below = 0;
#pragma unroll 1
        for (u32 at = s.from; at < s.to; at += ahead * 32) {
            i64 id[ahead];
            read(id, a, ids, at, s.to);
#pragma unroll
            for (i32 i = 0; i < ahead; i++) {
                const i64 own = id[i] - first;
                below += id[i] >= 0 && own < 0;
                if (own >= 0 && own < n) atomicAdd(&shared.place[threadIdx.x / 32][own], 1u);
            }
        }
#pragma unroll
        for (i32 distance = 1; distance < 32; distance *= 2)
            below += __shfl_xor_sync(~0u, below, distance);
        return below;
    }

    // Counts become places: those of an id behind all lower ones, those of a warp behind those of the warps
    // before it. Returns where the block's own end.
    DEV static u32 add_up(u32 below, Shared &shared)
    {
        const u32 warp = threadIdx.x / 32, lane = threadIdx.x % 32, first = threadIdx.x * each;
        u32 mine = 0;
#pragma unroll 1
        for (u32 r = first; r < first + each && r < range; r++)
#pragma unroll
            for (i32 w = 0; w < warps; w++) {
                const u32 n = shared.place[w][r];
                shared.place[w][r] = mine;
                mine += n;
            }
        u32 before = mine; // of the warp's threads up to this one
#pragma unroll
        for (u32 distance = 1; distance < 32; distance *= 2) {
            const u32 other = __shfl_sync(~0u, before, lane >= distance ? lane - distance : lane);
            before += lane >= distance ? other : 0;
        }
        if (lane == 31) shared.own[warp] = before;
        if (lane == 0) shared.below[warp] = below;
        __syncthreads();
        u32 end = 0;
        before -= mine;
#pragma unroll
        for (u32 w = 0; w < warps; w++) {
            before += shared.below[w] + (w < warp ? shared.own[w] : 0);
            end += shared.below[w] + shared.own[w];
        }
#pragma unroll 1
        for (u32 r = first; r < first + each && r < range; r++)
#pragma unroll
            for (i32 w = 0; w < warps; w++) shared.place[w][r] += before;
        return end;
    }

    // All lanes have an id; those of equal ones take adjacent places.
    DEV static void put(u32 token, u32 own, bool is_own, i32 *order, Shared &shared)
    {
        const u32 warp = threadIdx.x / 32, lane = threadIdx.x % 32;
        for (u32 left = __ballot_sync(~0u, is_own); left;) {
            const u32 id = __shfl_sync(~0u, own, __ffs(left) - 1);
            const bool same = is_own && own == id;
            const u32 all = __ballot_sync(~0u, same), next = shared.place[warp][id];
            if (same) order[next + __popc(all & ((1u << lane) - 1))] = (i32)token;
            __syncwarp();
            if (lane == 0) shared.place[warp][id] = next + __popc(all);
            __syncwarp();
            left &= ~all;
        }
    }
    template <class Args>
    DEV static void place(const Args &a, const T *ids, Span s, u32 first, u32 n, i32 *order, Shared &shared)
    {
#pragma unroll 1
        for (u32 at = s.from; at < s.to; at += ahead * 32) {
            i64 id[ahead];
            read(id, a, ids, at, s.to);
#pragma unroll
            for (i32 i = 0; i < ahead; i++) {
                const i64 own = id[i] - first;
                put(at + 32 * i + threadIdx.x % 32, (u32)own, own >= 0 && own < n, order, shared);
            }
        }
    }

    // `to` begins with rows + 1 numbers: how many tokens have a lower id. Behind them are the tokens.
    template <class Block, class Args>
    DEV static void run(const Block &block, const Args &a, const T *ids, i32 *to, u32 tokens, u32 rows)
    {
        Shared &shared = *(Shared *)block.shared();
        const Span s = span(tokens);
        for (u32 first = block.index() * range; first < rows; first += block.count() * range) {
            const u32 n = rows - first < range ? rows - first : range;
            for (u32 i = threadIdx.x; i < warps * range; i += threads) (&shared.place[0][0])[i] = 0;
            __syncthreads();
            const u32 below = count(a, ids, s, first, n, shared);
            __syncthreads();
            const u32 end = add_up(below, shared);
            __syncthreads();
            for (u32 r = threadIdx.x; r < n; r += threads) to[first + r] = (i32)shared.place[0][r];
            if (threadIdx.x == 0 && first + n == rows) to[rows] = (i32)end;
            __syncthreads();
            place(a, ids, s, first, n, to + rows + 1, shared);
            __syncthreads();
        }
    }
};

} // namespace coda
