// fold.cuh -- block reductions: merges the states that several threads hold of one row, or of one column.
//
// In an accumulator fragment the lanes 4r .. 4r + 3 hold row r: fold_lanes<R, 4> folds along the row. The
// lanes q, q + 4, ... hold the same columns: fold_lanes<R, 8, 4> folds along the column. In a kernel that
// gives a row to `warps` whole warps, fold_warps folds all of it. The lower thread's state always goes
// first, so every thread ends with the same bits, and these are the same on every run.
#pragma once
#include "port/vector.cuh"
#include "types.cuh"

namespace coda::block {

// `lanes` lanes, `step` apart; both are powers of 2. All lanes of the warp take part.
template <class R, i32 lanes, i32 step = 1> DEV void fold_lanes(typename R::State &s)
{
    static_assert(lanes * step <= 32, "a warp has 32 lanes");
#pragma unroll
    for (i32 distance = step; distance < lanes * step; distance *= 2) {
        typename R::State low, high;
        bool upper = threadIdx.x & distance;
#pragma unroll
        for (i32 i = 0; i < R::state; i++) {
            float other = __shfl_xor_sync(~0u, s.v[i], distance);
            low.v[i] = upper ? other : s.v[i];
            high.v[i] = upper ? s.v[i] : other;
        }
        R::merge(low, high);
        s = low;
    }
}

// All threads of the block's 32 * warps; `shared` has room for warps * R::state floats, and is free again
// when this returns.
template <class R, i32 warps> DEV void fold_warps(typename R::State &s, float *shared)
{
    fold_lanes<R, 32>(s);
    if constexpr (warps == 1) return;
    if (threadIdx.x % 32 == 0)
#pragma unroll
        for (i32 i = 0; i < R::state; i++) shared[threadIdx.x / 32 * R::state + i] = s.v[i];
    __syncthreads();
    R::init(s);
    for (i32 w = 0; w < warps; w++) {
        typename R::State other;
#pragma unroll
        for (i32 i = 0; i < R::state; i++) other.v[i] = shared[w * R::state + i];
        R::merge(s, other);
    }
    __syncthreads();
}

// A row's state from the `blocks` that several tiles made of it (see port/vector.cuh), merged by neighbouring
// lanes, each of which then has it; and its statistic.
template <class R, i32 lanes> DEV typename R::State merge_partials(const float *p, i64 row, i32 blocks)
{
    const i32 lane = threadIdx.x % lanes;
    port::Partials<R, lanes> states;
    states.load(p, row, lane, blocks);
    typename R::State s = states.merged(p, row, lane, blocks);
    fold_lanes<R, lanes>(s);
    return s;
}
template <class R, i32 lanes> DEV float finish_partials(const float *p, i64 row, i32 blocks)
{
    return R::finish(merge_partials<R, lanes>(p, row, blocks));
}

} // namespace coda::block
