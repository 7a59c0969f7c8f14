// top_k.cuh -- the k largest of each row, k up to 64, in descending order.
//
// A warp keeps its best in order, number 32 e + lane in register e of that lane, so that a candidate goes in
// by two shuffles. Few do: the row is read twice, and first each thread finds the best of its columns. If
// each of w warps has k / w threads with a best of at least `floor`, then the row has k such elements, and
// what is below it need not be looked at. Warps of one row leave their lists in shared memory, where each
// entry counts those that are better: that is its place. All orders are of candidates (candidate.cuh), no two
// of which are equal, so the result depends on nothing else.
#pragma once
#include "candidate.cuh"
#include "port/tile.cuh"
#include "tile/block.cuh"

namespace coda {

template <class Config> struct TopK {
    typedef typename Config::T T;
    static constexpr i32 k = Config::k, warps = Config::warps, held = (k + 31) / 32;
    static constexpr i32 bound = (k + warps - 1) / warps; // threads of a warp that are as good as the floor
    static constexpr u32 step = 32 * warps;
    static constexpr i32 ahead = 4; // loads that do not wait for what came before
    static_assert(k <= 64 && bound <= 32 && warps <= 32 && (warps == 1 || Config::rows_at_once == 1));

    struct Shared {
        u64 floor[warps], list[warps * k];
        i32 count[warps];
    };

    // ---- Warps ----

    DEV static u64 from_lane(u64 x, i32 lane)
    {
        return (u64)__shfl_sync(~0u, (u32)(x >> 32), lane) << 32 | __shfl_sync(~0u, (u32)x, lane);
    }
    DEV static u64 across(u64 x, i32 distance)
    {
        return (u64)__shfl_xor_sync(~0u, (u32)(x >> 32), distance) << 32 |
               __shfl_xor_sync(~0u, (u32)x, distance);
    }
    // The best first.
    DEV static u64 sort(u64 x)
    {
        const i32 lane = threadIdx.x % 32;
#pragma unroll
        for (i32 size = 2; size <= 32; size *= 2)
#pragma unroll
            for (i32 distance = size / 2; distance; distance /= 2) {
                const u64 other = across(x, distance);
                const bool better = !(lane & distance) == !(lane & size);
                x = (x > other) == better ? x : other;
            }
        return x;
    }
    // All lanes have x. What is as good as x stays before it, what is worse moves on by one.
    DEV static void insert(u64 (&list)[held], u64 x)
    {
        const i32 lane = threadIdx.x % 32;
#pragma unroll
        for (i32 e = held - 1; e >= 0; e--) {
            const u64 last = e ? from_lane(list[e ? e - 1 : 0], 31) : ~0ull;
            u64 before = from_lane(list[e], lane ? lane - 1 : 0);
            if (lane == 0) before = last;
            if (x > list[e]) list[e] = x > before ? before : x;
        }
    }

    // ---- A row ----

    DEV static u64 at(const T *row, u32 c, u32 columns)
    {
        if (c >= columns) return 0;
        const float x = load(row + c * Config::stride);
        if constexpr (!Config::parts) return candidate(x, c);
        const float column = load(row + c * Config::stride + 1); // none's is infinite
        return column < math::infinity() ? candidate(x, (u32)column) : 0;
    }

    // There are k elements that are no worse.
    DEV static u64 find_floor(const T *row, u32 columns, u32 first, Shared &shared, i32 warp)
    {
        u64 best = 0;
#pragma unroll(Config::parts ? 4 : 8) // of two loads each, or of one
        for (u32 c = first; c < columns; c += step) {
            const u64 x = at(row, c, columns);
            best = x > best ? x : best;
        }
        u64 floor = from_lane(sort(best), bound - 1);
        if constexpr (warps > 1) {
            if (threadIdx.x % 32 == 0) shared.floor[warp] = floor;
            __syncthreads();
            const i32 lane = threadIdx.x % 32;
            floor = lane < warps ? shared.floor[lane] : ~0ull;
#pragma unroll
            for (i32 distance = 1; distance < 32; distance *= 2) {
                const u64 other = across(floor, distance);
                floor = other < floor ? other : floor;
            }
        }
        return floor;
    }

    // The warp's best, of those that are no worse than the floor.
    DEV static void find_best(const T *row, u32 columns, u32 first, u64 floor, u64 (&list)[held])
    {
        u64 below = floor ? floor - 1 : 0; // what is to be inserted is better
#pragma unroll
        for (i32 e = 0; e < held; e++) list[e] = 0;
#pragma unroll 1
        for (u32 base = 0; base < columns; base += ahead * step) {
            u64 x[ahead];
#pragma unroll
            for (i32 i = 0; i < ahead; i++) x[i] = at(row, base + i * step + first, columns);
#pragma unroll
            for (i32 i = 0; i < ahead; i++)
                for (u32 left = __ballot_sync(~0u, x[i] > below); left; left &= left - 1) {
                    insert(list, from_lane(x[i], __ffs(left) - 1));
                    const u64 last = from_lane(list[(k - 1) / 32], (k - 1) % 32);
                    below = last > below ? last : below;
                }
        }
    }

    template <class V> DEV static void write(i64 row, i32 place, u64 c, V *values, i32 *indices)
    {
        if (values) store(values + row * k + place, candidate_value(c));
        if (indices) indices[row * k + place] = (i32)candidate_column(c);
    }

    // Behind each other all lists of the row; the number of their entries.
    DEV static i32 gather(const u64 (&list)[held], Shared &shared, i32 warp)
    {
        const i32 lane = threadIdx.x % 32;
        i32 mine = 0, before, all;
#pragma unroll
        for (i32 e = 0; e < held; e++) mine += __popc(__ballot_sync(~0u, list[e] != 0 && 32 * e + lane < k));
        if (lane == 0) shared.count[warp] = mine;
        __syncthreads();
        all = lane < warps ? shared.count[lane] : 0;
        before = lane < warp ? all : 0;
#pragma unroll
        for (i32 distance = 1; distance < 32; distance *= 2) {
            all += __shfl_xor_sync(~0u, all, distance);
            before += __shfl_xor_sync(~0u, before, distance);
        }
#pragma unroll
        for (i32 e = 0; e < held; e++)
            if (32 * e + lane < mine) shared.list[before + 32 * e + lane] = list[e];
        __syncthreads();
        return all;
    }

    template <class V>
    DEV static void run_row(const T *from, u32 columns, i64 row, V *values, i32 *indices, Shared &shared)
    {
        const i32 warp = threadIdx.x / 32 % warps, lane = threadIdx.x % 32;
        const u32 first = 32 * warp + lane;
        u64 list[held];
        find_best(from, columns, first, find_floor(from, columns, first, shared, warp), list);
        if constexpr (warps == 1) {
#pragma unroll
            for (i32 e = 0; e < held; e++)
                if (32 * e + lane < k) write(row, 32 * e + lane, list[e], values, indices);
        } else {
            const i32 all = gather(list, shared, warp);
            for (i32 i = threadIdx.x; i < all; i += step) {
                const u64 c = shared.list[i];
                i32 place = 0;
                for (i32 j = 0; j < all; j++) place += shared.list[j] > c;
                if (place < k) write(row, place, c, values, indices);
            }
            __syncthreads();
        }
    }

    // values or indices may be nullptr.
    template <class Block, class Args, class V>
    DEV static void run(const Block &block, const Args &args, const T *x, V *values, i32 *indices, i64 rows,
                        u32 columns)
    {
        Shared &shared = *(Shared *)block.shared();
        constexpr i32 each = Config::rows_at_once;
        for (i64 row = (i64)block.index() * each + threadIdx.x / step; row < rows;
             row += (i64)block.count() * each)
            run_row(x + Config::start(args, row), columns, row, values, indices, shared);
    }
};

} // namespace coda
