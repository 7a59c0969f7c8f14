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

// The states that the `blocks` tiles of a row made of it (see port/vector.cuh), which `lanes` neighbouring
// lanes merge: 1, 2, or a warp. load() has 8 or 16 of them, or 128 and more, on their way from memory at
// once: a kernel asks for those of several rows, and for more, before it waits. merged() joins neighbours,
// then pairs of these and so on, the same bits in each lane; one lane and two make the same.
template <class R, i32 lanes> struct States {
    static constexpr bool warp = lanes > 2; // whose lanes take every lanes-th
    static constexpr i32 of_warp = R::state == 1 ? 5 : 4; // sums of 132 blocks, or 160, come in one go
    static constexpr i32 of_row = R::state == 1 ? 16 : 8; // registers are few beside large accumulators
    static constexpr i32 each = R::state > 4 ? 1 : warp ? of_warp : of_row / lanes; // of a lane, in flight
    static constexpr i32 step = warp ? lanes : 1;
    typename R::State part[each];
    i32 there; // of these parts, which are the first ones

    DEV void load(const float *p, i64 row, i32 blocks, i32 from = 0)
    {
        const i32 lane = threadIdx.x % lanes, first = from + (warp ? lane : lane * each);
        there = (blocks - first + step - 1) / step;
#pragma unroll
        for (i32 i = 0; i < each; i++) {
            R::init(part[i]);
            if (first + i * step < blocks) part[i] = port::load_partial<R>(p, row, first + i * step, blocks);
        }
    }
    // What is not there is empty, and would change no bit of what finish() makes. A reduction that can joins
    // four neighbours at one time.
    template <class Q> DEV static constexpr bool has_four(decltype(Q::template merge_all<4>) *)
    {
        return each % 4 == 0;
    }
    template <class Q> DEV static constexpr bool has_four(...) { return false; }
    DEV void join()
    {
        constexpr bool four = has_four<R>(nullptr);
        if constexpr (four) {
#pragma unroll
            for (i32 i = 0; i < each; i += 4)
                R::merge_all(reinterpret_cast<typename R::State(&)[4]>(part[i]));
        }
#pragma unroll
        for (i32 near = four ? 4 : 1; near < each; near *= 2)
#pragma unroll
            for (i32 i = 0; i + near < each; i += 2 * near)
                if (i + near < there) R::merge(part[i], part[i + near]);
        if (!warp) fold_lanes<R, lanes>(part[0]);
    }
    DEV typename R::State merged(const float *p, i64 row, i32 blocks) const
    {
        States s = *this;
        s.join();
        typename R::State all = s.part[0];
#pragma unroll 1
        for (i32 from = each * lanes; from < blocks; from += each * lanes) {
            s.load(p, row, blocks, from);
            s.join();
            R::merge(all, s.part[0]);
        }
        if (warp) fold_lanes<R, lanes>(all);
        return all;
    }
};

} // namespace coda::block
