// vector.cuh -- one value for each row, or one for each column, of a tile; states of rows in parts.
//
// A row vector broadcasts along the columns: a thread loads the value of each row it owns once. A column
// vector broadcasts along the rows: a thread loads the values of its columns once, in pairs where it
// owns pairs. Outside 0..count-1 a load gives 0 and a store does nothing.
#pragma once
#include "port/tile.cuh"
#include "types.cuh"

namespace coda::port {

template <class T> DEV float load_at(const T *p, i64 stride, i64 i, i64 count)
{
    return 0 <= i && i < count ? load(p + i * stride) : 0.0f;
}
template <class T> DEV void store_at(T *p, i64 stride, i64 i, i64 count, float x)
{
    if (0 <= i && i < count) store(p + i * stride, x);
}
template <class T> DEV Pair load_pair_at(const T *p, i64 stride, i64 i, i64 count)
{
    return {load_at(p, stride, i, count), load_at(p, stride, i + 1, count)};
}

// Row statistics made by several tiles: float [row][block][R::state], one state for each block of columns.
// They are merged in an order of their places alone, so that the result never depends on who came first.
template <class R>
DEV void store_partial(float *p, i64 row, i64 block, i64 blocks, const typename R::State &s)
{
    float *to = p + (row * blocks + block) * R::state;
#pragma unroll
    for (i32 i = 0; i < R::state; i++) to[i] = s.v[i];
}
template <class R> DEV typename R::State load_partial(const float *p, i64 row, i64 block, i64 blocks)
{
    const float *from = p + (row * blocks + block) * R::state;
    typename R::State s;
    if constexpr (R::state % 2 == 0)
        load_piece(s.v, from);
    else
#pragma unroll
        for (i32 i = 0; i < R::state; i++) s.v[i] = from[i];
    return s;
}

// What one of `lanes` merges of a row's states: every lanes-th. load() has `count` of them, or as many as
// are left, on their way from memory at once. merged() joins neighbours, then pairs of these and so on, which
// wait less for each other than one after another.
template <class R, i32 lanes> struct Partials {
    static constexpr i32 count = R::state > 4 ? 1 : lanes > 1 ? 4 : R::state > 1 ? 8 : 16;
    typename R::State part[count];

    DEV void load(const float *p, i64 row, i32 first, i32 blocks)
    {
#pragma unroll
        for (i32 i = 0; i < count; i++) {
            R::init(part[i]);
            if (first + i * lanes < blocks) part[i] = load_partial<R>(p, row, first + i * lanes, blocks);
        }
    }
    DEV void join()
    {
#pragma unroll
        for (i32 near = 1; near < count; near *= 2)
#pragma unroll
            for (i32 i = 0; i + near < count; i += 2 * near) R::merge(part[i], part[i + near]);
    }
    DEV typename R::State merged(const float *p, i64 row, i32 lane, i32 blocks)
    {
        join();
        typename R::State s = part[0];
#pragma unroll 1
        for (i32 i = lane + count * lanes; i < blocks; i += count * lanes) {
            load(p, row, i, blocks);
            join();
            R::merge(s, part[0]);
        }
        return s;
    }
};

} // namespace coda::port
