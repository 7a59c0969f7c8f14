// access.cuh -- how an epilogue reads and writes tensors: a few elements of one row at a time.
#pragma once

#include "types.cuh"

namespace coda {

// Two neighbouring columns in each octet of a patch.
struct Line { float x[2][2]; };

// Their place in a tensor: the first column in octets A and B, the distance to the second one, and how
// many of the two exist.
struct Span {
    i64 column[2];
    int step, live[2];
};

struct Place {
    i64 batch, m;
    Span full, half; // half: the columns of a gated output, in octet A only
};

// Two 16-bit or 32-bit elements in one access; p is aligned to both.
template <class T> DEV Pair read_pair(const T *p)
{
    if constexpr (sizeof(T) == 2) return unpack2<T>(*(const u32 *)p);
    else {
        const u64 both = *(const u64 *)p;
        const u32 lo = (u32)both, hi = (u32)(both >> 32);
        return {to_float((const T &)lo), to_float((const T &)hi)};
    }
}
template <class T> DEV void write_pair(T *p, float a, float b)
{
    if constexpr (sizeof(T) == 2) *(u32 *)p = pack2<T>(a, b);
    else {
        const T lo = from_float<T>(a), hi = from_float<T>(b);
        *(u64 *)p = (u64)(const u32 &)hi << 32 | (const u32 &)lo;
    }
}

// Columns are adjacent and pairs aligned.
template <class T> DEV Line read_pairs(const T *row, const Span &s)
{
    Line y = {};
#pragma unroll
    for (int side = 0; side < 2; side++)
        if (s.live[side]) {
            const Pair p = read_pair(row + s.column[side]);
            y.x[side][0] = p.a, y.x[side][1] = p.b;
        }
    return y;
}
template <class T> DEV void write_pairs(T *row, const Span &s, const Line &y)
{
#pragma unroll
    for (int side = 0; side < 2; side++)
        if (s.live[side]) write_pair(row + s.column[side], y.x[side][0], y.x[side][1]);
}

// Any column stride and alignment.
template <class T> DEV Line read_each(const T *row, const Span &s, i64 stride)
{
    Line y = {};
#pragma unroll
    for (int i = 0; i < 4; i++)
        if (i % 2 < s.live[i / 2]) y.x[i / 2][i % 2] = load(row + (s.column[i / 2] + i % 2 * s.step) * stride);
    return y;
}
template <class T> DEV void write_each(T *row, const Span &s, i64 stride, const Line &y)
{
#pragma unroll
    for (int i = 0; i < 4; i++)
        if (i % 2 < s.live[i / 2]) store(row + (s.column[i / 2] + i % 2 * s.step) * stride, y.x[i / 2][i % 2]);
}

// Row `id` of a table, zeros if it has none.
template <class T> DEV const T *table_row(const T *table, float id, i64 rows, i64 stride)
{
    return table + (id >= 0.0f && id < (float)rows ? (i64)id * stride : 0);
}
DEV Line in_table(const Line &x, float id, i64 rows) { return id >= 0.0f && id < (float)rows ? x : Line{}; }

// The states of a row's blocks, [row][block][state]: merged in the order of blocks and finished ...
template <class R, int blocks> DEV float finish_partials(const float *p, i64 row)
{
    typename R::State all;
    R::init(all);
    p += row * (blocks * R::state);
#pragma unroll 8
    for (int i = 0; i < blocks; i++) {
        typename R::State s;
#pragma unroll
        for (int j = 0; j < R::state; j++) s.v[j] = p[i * R::state + j];
        R::merge(all, s);
    }
    return R::finish(all);
}
// ... and written.
template <class R, int blocks> DEV void save_partial(float *p, i64 row, int block, const typename R::State &s)
{
#pragma unroll
    for (int j = 0; j < R::state; j++) p[(row * blocks + block) * R::state + j] = s.v[j];
}

// The state that the lane `distance` away holds.
template <class State> DEV State shuffle_state(const State &s, int distance)
{
    State o;
#pragma unroll
    for (u32 i = 0; i < sizeof s.v / sizeof *s.v; i++) o.v[i] = __shfl_xor_sync(~0u, s.v[i], distance);
    return o;
}

// Turns for each position, first * ratio^i, in two floats.
struct Turns { float high, low; };
DEV Turns rope_turns(double first, double ratio, int i)
{
    for (; i; i >>= 1, ratio *= ratio)
        if (i & 1) first *= ratio;
    const float high = (float)first;
    return {high, (float)(first - high)};
}

} // namespace coda
