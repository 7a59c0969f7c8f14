// column_states.cuh -- reductions down columns by blocks of threads: states of parts of a matrix's rows in
// memory, float [matrix][part][column][R::state], how a block leaves one and how they are merged.
//
// A block's threads stand `across` by `down`, neighbours beside each other. States are merged in the order of
// rows that threads have, then of parts: the bits are the same on every run.
#pragma once
#include "block/fold.cuh"

namespace coda::rows {

// Each thread has states of `width` neighbouring columns; thread 0's begin with column `first`. `part` counts
// the parts of all matrices. `shared` has room for the block's states.
template <class R, int across, int down, int width>
DEV void store_columns(const typename R::State (&s)[width], float *shared, float *to, i64 part, i64 first,
                       i64 columns)
{
    constexpr int threads = across * down;
    __syncthreads(); // what was here has been read
#pragma unroll
    for (int i = 0; i < R::state * width; i++) shared[i * threads + threadIdx.x] = s[i % width].v[i / width];
    __syncthreads();
    for (int k = threadIdx.x; k < across * width; k += threads) {
        const int x = k % across, j = k / across;
        typename R::State all, next;
        R::init(all);
        for (int y = 0; y < down; y++) {
#pragma unroll
            for (int i = 0; i < R::state; i++) next.v[i] = shared[(i * width + j) * threads + y * across + x];
            R::merge(all, next);
        }
        const i64 c = first + x * width + j;
        if (c < columns) port::store_partial<R>(to, part, c, columns, all);
    }
}

// The state of column c of a matrix that has so many parts, for the threads whose `down` is 0. All threads of
// the block take part. A thread has `ahead` states on their way from memory at once.
template <class R, int across, int down>
DEV typename R::State merge_columns(const float *from, float *shared, i64 matrix, i64 c, i64 columns,
                                    i32 parts)
{
    constexpr int ahead = 4;
    const int y = threadIdx.x / across;
    typename R::State s, next[ahead];
    R::init(s);
#pragma unroll 1
    for (int part = y; part < parts && c < columns; part += ahead * down) {
#pragma unroll
        for (int i = 0; i < ahead; i++) {
            R::init(next[i]);
            if (part + i * down < parts)
                next[i] = port::load_partial<R>(from, matrix * parts + part + i * down, c, columns);
        }
#pragma unroll
        for (int i = 0; i < ahead; i++) R::merge(s, next[i]);
    }
    if constexpr (down > 1) {
        __syncthreads(); // what was here has been read
#pragma unroll
        for (int i = 0; i < R::state; i++) shared[i * across * down + threadIdx.x] = s.v[i];
        __syncthreads();
        for (int other = 1; other < down && y == 0; other++) {
#pragma unroll
            for (int i = 0; i < R::state; i++)
                next[0].v[i] = shared[i * across * down + other * across + threadIdx.x];
            R::merge(s, next[0]);
        }
    }
    return s;
}

} // namespace coda::rows
