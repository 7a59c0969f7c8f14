// rows.cuh -- what kernels over rows stand on: reductions of a row by a team of threads, tables, and where
// a column stands in its rotary pair.
#pragma once
#include "types.cuh"

namespace coda::rows {

// A warp's states in lane 0: lane i takes in lane i + 16, then i + 8, ..., always in this order.
template <class R> DEV void merge_warp(typename R::State &s)
{
#pragma unroll
    for (int distance = 16; distance > 0; distance /= 2) {
        typename R::State other;
#pragma unroll
        for (int k = 0; k < R::state; k++) other.v[k] = __shfl_down_sync(~0u, s.v[k], distance);
        R::merge(s, other);
    }
}

// A row's statistic from the states of its team's threads, the same bits in each thread. A team is one
// thread, one warp, or the whole block, whose warps are then merged in their order.
template <class R, int team> DEV float finish(typename R::State s)
{
    if constexpr (team > 1) merge_warp<R>(s);
    if constexpr (team == 32) {
#pragma unroll
        for (int k = 0; k < R::state; k++) s.v[k] = __shfl_sync(~0u, s.v[k], 0);
    }
    if constexpr (team > 32) {
        __shared__ typename R::State warp[team / 32];
        __syncthreads(); // everyone has read what the reduction before this one left
        if (threadIdx.x % 32 == 0) warp[threadIdx.x / 32] = s;
        __syncthreads();
        s = warp[0];
#pragma unroll
        for (int i = 1; i < team / 32; i++) R::merge(s, warp[i]);
    }
    return R::finish(s);
}

// The row of a table that an id names, -1 if there is none; NaN names none.
DEV i64 table_row(float id, i64 rows) { return id >= 0.0f && id < (float)rows ? (i64)id : -1; }

// Column c of a row of heads: whether it is rotated, whether it is the second of its pair, the pair's
// index in the head, and the partner's column.
struct RopeSpot {
    bool turns, second;
    int pair, partner;
};
template <int head_dim, int rotary, int heads, bool half> DEV RopeSpot rope_spot(int c)
{
    const int h = c % head_dim, apart = half ? rotary / 2 : 1;
    if (c >= heads * head_dim || h >= rotary) return {false, false, 0, c};
    const bool second = half ? h >= apart : h % 2 != 0;
    const int first = second ? h - apart : h;
    return {true, second, half ? first : first / 2, second ? c - apart : c + apart};
}

} // namespace coda::rows
