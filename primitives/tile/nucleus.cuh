// nucleus.cuh -- the least element of each row that top-k, top-p and min-p keep.
//
// A block has a row. What is to be found is the largest element such that it and those above it add up to
// enough: each counts 1 for top-k, and its weight e^((x - max) / temperature) for top-p. The order of floats
// is that of integers (candidate.cuh), of which a histogram of the upper 11 bits says where to look, then one
// of the next 11, then of the last 10. Weights are whole multiples of 2^-38, and sums of integers are the
// same in any order: so is the result, whoever comes first.
#pragma once
#include "candidate.cuh"
#include "port/tile.cuh"
#include "tile/block.cuh"

namespace coda {

template <class Config> struct Nucleus {
    typedef typename Config::T T;
    static constexpr i32 threads = Config::threads, warps = threads / 32, bins = 2048, each = bins / threads;
    static_assert(threads % 32 == 0 && bins % threads == 0 && warps <= 32);

    struct Shared {
        u64 bin[bins], above[threads], left; // above[i]: in the bins of thread i and those behind it
        u32 digit;
        float most[warps];
    };
    struct Row {
        const T *x;
        u32 columns;
        float most, scale; // weights are 2^((x - most) scale)
        u32 floor;         // less is not looked at
    };

    DEV static u32 order(float x) { return (u32)(candidate(x, 0) >> 32); }
    DEV static float at(const Row &row, u32 c) { return load(row.x + (i64)c * Config::stride); }

    // NaN if there is one.
    DEV static float find_most(const Row &row, Shared &shared)
    {
        float most = -math::infinity();
#pragma unroll 4
        for (u32 c = threadIdx.x; c < row.columns; c += threads) most = math::max(most, at(row, c));
#pragma unroll
        for (i32 distance = 1; distance < 32; distance *= 2)
            most = math::max(most, __shfl_xor_sync(~0u, most, distance));
        if (threadIdx.x % 32 == 0) shared.most[threadIdx.x / 32] = most;
        __syncthreads();
#pragma unroll
        for (i32 w = 0; w < warps; w++) most = math::max(most, shared.most[w]);
        return most;
    }

    template <bool weighs> DEV static u64 amount(const Row &row, float x)
    {
        if constexpr (!weighs) return 1;
        const float w = x == row.most ? 1.0f : math::exp2((x - row.most) * row.scale);
        return w > 0.0f ? (u64)(w * 0x1p38f) : 0; // of inf - inf nothing
    }

    template <bool weighs>
    DEV static void fill(const Row &row, u32 prefix, u32 mask, u32 shift, Shared &shared)
    {
        for (i32 i = threadIdx.x; i < bins; i += threads) shared.bin[i] = 0;
        __syncthreads();
#pragma unroll 4
        for (u32 c = threadIdx.x; c < row.columns; c += threads) {
            const float x = at(row, c);
            const u32 key = order(x);
            if (key < row.floor || (key & mask) != prefix) continue;
            const u64 a = amount<weighs>(row, x);
            if (a) atomicAdd(&shared.bin[(key & ~mask) >> shift], a);
        }
        __syncthreads();
    }

    // What the thread's bins have, and in `above` what they and all behind them have.
    DEV static u64 add_up(Shared &shared)
    {
        u64 mine = 0;
#pragma unroll
        for (i32 i = 0; i < each; i++) mine += shared.bin[threadIdx.x * each + i];
        shared.above[threadIdx.x] = mine;
        __syncthreads();
        for (i32 distance = 1; distance < threads; distance *= 2) {
            const u64 more = threadIdx.x + distance < threads ? shared.above[threadIdx.x + distance] : 0;
            __syncthreads();
            shared.above[threadIdx.x] += more;
            __syncthreads();
        }
        return mine;
    }

    // The bin in which `left`, counted from the last bin on, is reached, and what of it that one must have.
    DEV static void find_bin(u64 left, u64 mine, Shared &shared)
    {
        u64 above = shared.above[threadIdx.x] - mine;
        if (above < left && left <= above + mine) {
            u32 bin = threadIdx.x * each + each - 1;
            while (above + shared.bin[bin] < left) above += shared.bin[bin--];
            shared.digit = bin;
            shared.left = left - above;
        }
        __syncthreads();
    }

    // The largest key such that it and those above add up to k, or to the part p of all.
    template <bool weighs> DEV static u32 find(const Row &row, float wanted, Shared &shared)
    {
        u32 prefix = 0, mask = 0;
        u64 left = (u64)wanted;
#pragma unroll 1
        for (i32 level = 0; level < 3; level++) {
            const u32 shift = level == 0 ? 21 : level == 1 ? 10 : 0;
            fill<weighs>(row, prefix, mask, shift, shared);
            const u64 mine = add_up(shared);
            if (weighs && level == 0) {
                const u64 all = shared.above[0], part = (u64)(fmaxf(wanted, 0.0f) * (float)all);
                left = part < 1 ? 1 : part < all ? part : all;
            }
            find_bin(left, mine, shared);
            left = shared.left;
            prefix |= shared.digit << shift;
            mask = ~0u << shift;
        }
        return prefix;
    }

    DEV static float find_least(Row &row, float t, float k, float p, float min_p, Shared &shared)
    {
        const bool by_count = k >= 1.0f && k < (float)row.columns;
        if (!by_count && !(p < 1.0f) && !(min_p > 0.0f)) return -math::infinity();
        row.most = find_most(row, shared);
        if (row.most != row.most) return row.most;
        row.scale = math::LOG2_E / t;
        if (by_count) row.floor = find<false>(row, k, shared);
        if (p < 1.0f) row.floor = find<true>(row, p, shared);
        float least = row.floor ? candidate_value((u64)row.floor << 32) : -math::infinity();
        if (min_p > 0.0f) least = fmaxf(least, fminf(row.most, row.most + t * math::log(min_p)));
        return least;
    }

    // k, p and min_p may be nullptr.
    template <class Block, class Args>
    DEV static void run(const Block &block, const Args &args, const T *x, f32 *least, i64 rows)
    {
        Shared &shared = *(Shared *)block.shared();
        for (i64 i = block.index(); i < rows; i += block.count()) {
            Row row = {x + i * Config::pitch(args), Config::columns, 0, 0, 0};
            const float t = fmaxf(Config::temperature(args, i), 0.0f);
            const float found =
                find_least(row, t, Config::k(args, i), Config::p(args, i), Config::min_p(args, i), shared);
            if (threadIdx.x == 0) least[i] = found;
            __syncthreads();
        }
    }
};

} // namespace coda
