// rows.cuh -- what kernels over rows stand on: reductions of a row by a team of threads, quotients by a
// row's value, tables, and where a column stands in its pair.
#pragma once
#include "block/fold.cuh"
#include "math.cuh"
#include "tile/block.cuh"

namespace coda::rows {

// A row's state from those of its team's threads, the same bits in each thread. A team is up to 32
// neighbouring lanes, a power of 2, or the whole block.
template <class R, int team> DEV typename R::State fold(typename R::State s)
{
    if constexpr (team <= 32) block::fold_lanes<R, team>(s);
    if constexpr (team > 32) {
        __shared__ float states[team / 32 * R::state];
        block::fold_warps<R, team / 32>(s, states);
    }
    return s;
}

// A row's statistic.
template <class R, int team> DEV float finish(typename R::State s) { return R::finish(fold<R, team>(s)); }

// The sum of what a team's threads have.
struct Sum {
    static constexpr int state = 1;
    struct State { float v[state]; };
    DEV static void init(State &s) { s.v[0] = 0.0f; }
    DEV static void merge(State &s, const State &o) { s.v[0] += o.v[0]; }
};
template <int team> DEV float total(float x) { return fold<Sum, team>({{x}}).v[0]; }

// Quotients of many x by a row's y, as `/` rounds them, with one reciprocal: where nothing on the way leaves
// fp32's range. `/` makes a reciprocal for each, behind a branch.
struct Quotient {
    float y, reciprocal;
    bool usual;

    DEV explicit Quotient(float of) : y(of), reciprocal(math::rcp(of))
    {
        reciprocal = fmaf(fmaf(-y, reciprocal, 1.0f), reciprocal, reciprocal);
        usual = fabsf(y) >= 0x1p-60f && fabsf(y) <= 0x1p60f;
    }
    DEV float of(float x) const
    {
        const float q = x * reciprocal;
        if (usual && fabsf(q) >= 0x1p-40f && fabsf(q) <= 0x1p60f)
            return fmaf(fmaf(-y, q, x), reciprocal, q);
        return x / y;
    }
    // Of neighbours: one branch for all of them.
    template <int n> DEV void of(float (&to)[n], const float (&x)[n]) const
    {
        bool all = usual;
#pragma unroll
        for (int i = 0; i < n; i++) {
            const float q = x[i] * reciprocal;
            all &= fabsf(q) >= 0x1p-40f, all &= fabsf(q) <= 0x1p60f;
            to[i] = fmaf(fmaf(-y, q, x[i]), reciprocal, q);
        }
        if (all) return;
#pragma unroll
        for (int i = 0; i < n; i++) to[i] = x[i] / y;
    }
};

// The row of a table that an id names, -1 if there is none; NaN names none.
DEV i64 table_row(float id, i64 rows) { return id >= 0.0f && id < (float)rows ? (i64)id : -1; }

// Elements from the first of a cache to its row `at`, of pages; of row -1 none.
DEV i64 cache_row(i64 at, u32 page, i64 page_stride, i64 stride)
{
    return at < 0 ? 0 : (u32)at / page * page_stride + (u32)at % page * stride;
}

// Column c of a row of heads: whether it is in a pair, whether it is the second of its pair, the pair's
// index in the head, and the partner's column.
struct PairSpot {
    bool turns, second;
    int pair, partner;
};
template <int head_dim, int rotary, int heads, bool half> DEV PairSpot pair_spot(int c)
{
    const int h = c % head_dim, apart = half ? rotary / 2 : 1;
    if (c >= heads * head_dim || h >= rotary) return {false, false, 0, c};
    const bool second = half ? h >= apart : h % 2 != 0;
    const int first = second ? h - apart : h;
    return {true, second, half ? first : first / 2, second ? c - apart : c + apart};
}

// Room for the turns of a row's pairs, which its threads make together.
template <int pairs> DEV Pair *turns()
{
    __shared__ Pair room[pairs];
    return room;
}

} // namespace coda::rows
