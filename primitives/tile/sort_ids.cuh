// sort_ids.cuh -- which tokens have each id: a stable counting sort (Knuth, TAOCP 3, 5.2).
//
// A block has a range of ids, and reads all tokens twice: so it needs to hear of no other block. First it
// counts those of lower ids, behind which its own go, and of its own each; then these take their places. A
// warp has a span of tokens and a count of each id, so that the places follow from the tokens alone: those of
// one id are in the order of the spans, and within a span in that of the tokens.
#pragma once
#include "tile/scan.cuh"
#include "tile/block.cuh"

namespace coda {

template <class Config> struct SortIds {
    typedef typename Config::T T; // i32 or i64
    static constexpr i32 threads = Config::threads, warps = threads / 32;
    static constexpr u32 range = Config::range, each = (range + threads - 1) / threads;
    static constexpr i32 ahead = 16; // loads that do not wait for what came before
    static_assert(threads % 32 == 0 && warps <= 32 && (range & (range - 1)) == 0);

    struct Shared {
        u32 place[warps][range]; // of a warp's tokens of an id: their number, then where the next one goes
        u32 below[warps], own[warps];
    };
    struct Span { // of a warp
        u32 from, to;
    };

    DEV static Span span(u32 tokens)
    {
        const u32 groups = tokens / 32 + (tokens % 32 != 0), length = (groups + warps - 1) / warps * 32;
        const u32 from = threadIdx.x / 32 * length < tokens ? threadIdx.x / 32 * length : tokens;
        return {from, tokens - from < length ? tokens : from + length};
    }

    // visit(token, id) for each token of the span, by all lanes at once: behind the last one the id is -1.
    template <class Args, class Visit>
    DEV static void each_token(const Args &a, const T *ids, Span s, Visit visit)
    {
#pragma unroll 1
        for (u32 at = s.from; at < s.to; at += ahead * 32) {
            const u32 first = at + threadIdx.x % 32;
            T id[ahead];
#pragma unroll
            for (i32 i = 0; i < ahead; i++)
                id[i] = first + 32 * i < s.to ? ids[(i64)(first + 32 * i) * Config::stride(a)] : (T)-1;
#pragma unroll
            for (i32 i = 0; i < ahead; i++) visit(first + 32 * i, (i64)id[i]);
        }
    }

    // How many of the warp's tokens have a lower id.
    template <class Args>
    DEV static u32 count(const Args &a, const T *ids, Span s, u32 first, u32 n, Shared &shared)
    {
        u32 below = 0;
        each_token(a, ids, s, [&](u32, i64 id) {
            const i64 own = id - first;
            below += id >= 0 && own < 0;
            if (own >= 0 && own < n) atomicAdd(&shared.place[threadIdx.x / 32][own], 1u);
        });
        return below;
    }

    // Counts become places: those of an id behind all lower ones, those of a warp behind those of the warps
    // before it. Returns where the block's own end.
    DEV static u32 add_up(u32 below, Shared &shared)
    {
        const u32 first = threadIdx.x * each;
        u32 mine = 0, lower, own;
#pragma unroll 1
        for (u32 r = first; r < first + each && r < range; r++)
#pragma unroll
            for (i32 w = 0; w < warps; w++) {
                const u32 n = shared.place[w][r];
                shared.place[w][r] = mine;
                mine += n;
            }
        scan_warps<warps>(below, lower, shared.below);
        const u32 before = lower + scan_warps<warps>(mine, own, shared.own) - mine;
#pragma unroll 1
        for (u32 r = first; r < first + each && r < range; r++)
#pragma unroll
            for (i32 w = 0; w < warps; w++) shared.place[w][r] += before;
        return lower + own;
    }

    // Lanes that have an own token of the same id; there are some.
    DEV static u32 equals(u32 own, u32 mask)
    {
#pragma unroll
        for (u32 bit = 1; bit < range; bit *= 2) {
            const u32 set = __ballot_sync(~0u, (own & bit) != 0);
            mask &= own & bit ? set : ~set;
        }
        return mask;
    }
    // Equal ones take adjacent places.
    template <class Args>
    DEV static void place(const Args &a, const T *ids, Span s, u32 first, u32 n, i32 *order, i32 *sorted,
                          Shared &shared)
    {
        u32 *const next = shared.place[threadIdx.x / 32];
        each_token(a, ids, s, [&](u32 token, i64 id) {
            const u32 own = (u32)(id - first);
            const bool is_own = id >= first && id - first < n;
            const u32 all = __ballot_sync(~0u, is_own);
            if (!all) return;
            const u32 same = equals(own, all), before = __popc(same & ((1u << threadIdx.x % 32) - 1));
            const u32 at = is_own ? next[own] : 0;
            if (is_own) order[at + before] = (i32)token;
            if (is_own) sorted[at + before] = (i32)id;
            __syncwarp();
            if (is_own && before == 0) next[own] = at + __popc(same);
            __syncwarp();
        });
    }

    // `to` begins with rows + 1 numbers: how many tokens have a lower id. Behind them are the tokens, behind
    // these their ids.
    template <class Block, class Args>
    DEV static void run(const Block &block, const Args &a, const T *ids, i32 *to, u32 tokens, u32 rows)
    {
        Shared &shared = *(Shared *)block.shared();
        const Span s = span(tokens);
        i32 *const order = to + rows + 1;
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
            place(a, ids, s, first, n, order, order + tokens, shared);
            __syncthreads();
        }
    }
};

} // namespace coda
