// vector.cuh -- one value for each row, or one for each column, of a tile; states of rows in parts.
//
// A row vector broadcasts along the columns: a thread loads the value of each row it owns once. A column
// vector broadcasts along the rows: a thread loads the values of its columns once, in pairs where it
// owns pairs. Outside 0..count-1 a load gives 0 and a store does nothing.
#pragma once
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
// They are merged from the first block to the last, so that the result never depends on who came first.
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
#pragma unroll
    for (i32 i = 0; i < R::state; i++) s.v[i] = from[i];
    return s;
}
template <class R> DEV float finish_partials(const float *p, i64 row, i64 blocks)
{
    typename R::State s;
    R::init(s);
#pragma unroll 16 // loads that do not wait for each other
    for (i64 b = 0; b < blocks; b++) R::merge(s, load_partial<R>(p, row, b, blocks));
    return R::finish(s);
}

} // namespace coda::port
