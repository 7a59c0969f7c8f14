// access.cuh -- how an epilogue reads and writes tensors: a few elements of one row at a time.
#pragma once

#include "port/tile.cuh"
#include "port/vector.cuh"

namespace coda {

// Two neighbouring columns in each octet of a patch.
struct Line { float x[2][2]; };

// Their place in a row of a tensor: the thread's first column in the tile, the distances from there to
// octets A and B and from a column to its neighbour, and how many of the two exist.
struct Span {
    i64 first;
    int distance[2], step, live[2];
};

struct Place {
    i64 batch, m;
    Span full, half; // half: the columns of a gated output, in octet A only
};

// What of a span lies in columns first .. end - 1, both of which are even.
DEV Span window(Span s, i64 first, i64 end)
{
#pragma unroll
    for (int side = 0; side < 2; side++) {
        const i64 column = s.first + s.distance[side];
        if (column < first || column >= end) s.live[side] = 0;
    }
    return s;
}

// Columns are adjacent and pairs aligned.
template <class T> DEV Line read_pairs(const T *row, const Span &s)
{
    Line y = {};
#pragma unroll
    for (int side = 0; side < 2; side++)
        if (s.live[side]) {
            const Pair p = port::load_pair(row + s.first + s.distance[side]);
            y.x[side][0] = p.a, y.x[side][1] = p.b;
        }
    return y;
}
template <class T> DEV void write_pairs(T *row, const Span &s, const Line &y)
{
#pragma unroll
    for (int side = 0; side < 2; side++)
        if (s.live[side]) port::store_pair(row + s.first + s.distance[side], {y.x[side][0], y.x[side][1]});
}

// What is there, and more.
template <class T> DEV void accumulate_pairs(T *row, const Span &s, const Line &y)
{
#pragma unroll
    for (int side = 0; side < 2; side++)
        if (s.live[side]) {
            T *at = row + s.first + s.distance[side];
            const Pair p = port::load_pair(at);
            port::store_pair(at, {p.a + y.x[side][0], p.b + y.x[side][1]});
        }
}

// Any column stride and alignment.
template <class T> DEV Line read_each(const T *row, const Span &s, i64 stride)
{
    Line y = {};
#pragma unroll
    for (int i = 0; i < 4; i++)
        if (i % 2 < s.live[i / 2])
            y.x[i / 2][i % 2] = load(row + stride * (s.first + s.distance[i / 2] + i % 2 * s.step));
    return y;
}
template <class T> DEV void write_each(T *row, const Span &s, i64 stride, const Line &y)
{
#pragma unroll
    for (int side = 0; side < 2; side++) {
        const port::Vector<T, 2> v = port::round_pair<T>({y.x[side][0], y.x[side][1]});
#pragma unroll
        for (int e = 0; e < 2; e++)
            if (e < s.live[side]) row[stride * (s.first + s.distance[side] + e * s.step)] = v.at[e];
    }
}

template <class T> DEV void accumulate_each(T *row, const Span &s, i64 stride, const Line &y)
{
#pragma unroll
    for (int i = 0; i < 4; i++)
        if (i % 2 < s.live[i / 2])
            accumulate(row + stride * (s.first + s.distance[i / 2] + i % 2 * s.step), y.x[i / 2][i % 2]);
}

// Row `id` of a table, or of a state; row 0 if it has none.
DEV bool in_table(float id, i64 rows) { return id >= 0.0f && id < (float)rows; }
template <class T> DEV T *table_row(T *table, float id, i64 rows, i64 stride)
{
    return table + (in_table(id, rows) ? (i64)id * stride : 0);
}

// Row `slot` of a cache in pages [heads][page][head_dim], counted from column `first` on: heads lie `apart`.
template <class T, int head_dim, i64 apart> struct CacheRow {
    T *row;
    i64 first;
    DEV CacheRow operator-(i64 columns) const { return {row, first + columns}; }
    DEV T *at(i64 column, i64 stride) const
    {
        const u32 c = (u32)(column - first);
        return row + c / head_dim * apart + c % head_dim * stride;
    }
};
template <int head_dim, i64 apart, class T>
DEV CacheRow<T, head_dim, apart> cache_row(T *cache, float slot, i64 rows, u32 page, i64 page_stride,
                                           i64 stride)
{
    const u32 at = in_table(slot, rows) ? (u32)slot : 0;
    return {cache + at / page * page_stride + at % page * stride, 0};
}
template <class T, int head_dim, i64 apart>
DEV void write_pairs(const CacheRow<T, head_dim, apart> &row, const Span &s, const Line &y)
{
#pragma unroll
    for (int side = 0; side < 2; side++)
        if (s.live[side])
            port::store_pair(row.at(s.first + s.distance[side], 1), {y.x[side][0], y.x[side][1]});
}
template <class T, int head_dim, i64 apart>
DEV void write_each(const CacheRow<T, head_dim, apart> &row, const Span &s, i64 stride, const Line &y)
{
#pragma unroll
    for (int side = 0; side < 2; side++) {
        const port::Vector<T, 2> v = port::round_pair<T>({y.x[side][0], y.x[side][1]});
#pragma unroll
        for (int e = 0; e < 2; e++)
            if (e < s.live[side]) *row.at(s.first + s.distance[side] + e * s.step, stride) = v.at[e];
    }
}

// Values over their scale: of the columns from `first` on, each so many have one.
template <int columns> DEV Line over(Line y, const Span &s, const float *scale, i64 stride, i64 first)
{
#pragma unroll
    for (int i = 0; i < 4; i++)
        if (i % 2 < s.live[i / 2]) {
            const u32 column = (u32)(s.first + s.distance[i / 2] + i % 2 * s.step - first);
            y.x[i / 2][i % 2] /= scale[column / columns * stride];
        }
    return y;
}

// What the lane `distance` away holds of a struct of floats.
template <class State> DEV State from_lane(const State &s, int distance)
{
    State o;
#pragma unroll
    for (u32 i = 0; i < sizeof s / sizeof(float); i++)
        ((float *)&o)[i] = __shfl_xor_sync(~0u, ((const float *)&s)[i], distance);
    return o;
}

} // namespace coda
