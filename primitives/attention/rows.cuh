// rows.cuh -- rows of columns on their way to shared memory, as floats, by a block of `threads`.
//
// Columns are padded with zeros to a multiple of 4, rows are `pitch` floats apart, an odd number of quads:
// 16-byte reads of eight neighbouring rows, or of two, do not meet in a bank. Floats come by cp.async: commit
// and wait (ptx/copy.cuh). Others are converted, and are there when copy() returns. If `quads`, rows begin at
// multiples of 4 elements in memory and 4 move at a time; else one.
#pragma once
#include "port/tile.cuh"
#include "ptx/control.cuh"
#include "ptx/copy.cuh"

namespace coda {

template <i32 head_dim, i32 threads> struct Rows {
    static constexpr i32 columns = (head_dim + 3) / 4 * 4, pitch = columns / 4 % 2 ? columns : columns + 4;

    template <i32 width, class T> DEV static void move(float *to, const T *from, bool there)
    {
        if constexpr (sizeof(T) == 4) {
            ptx::copy_async<4 * width>(ptx::shared_address(to), from, there ? 4 * width : 0);
        } else {
            float x[width] = {};
            if (there) port::load_piece(x, from);
            port::store_piece(to, x);
        }
    }

    // Row r of `count` is the one from from[at] on, if place(r, at) says that it is there; else it is zeros.
    // Neighbouring threads take neighbouring pieces of a row.
    template <bool quads, i32 count, class T, class Place>
    DEV static void copy(float *to, const T *from, Place place)
    {
        constexpr i32 width = quads ? 4 : 1, across = columns / width % 16 ? 8 : 16;
        constexpr i32 at_once = sizeof(T) == 4 ? 1 : 4; // copies need no registers that wait
        static_assert(!quads || head_dim % 4 == 0);
        const i32 first = threadIdx.x % across * width;
#pragma unroll at_once
        for (i32 r = threadIdx.x / across; r < count; r += threads / across) {
            i64 at = 0;
            const bool there = place(r, at);
#pragma unroll
            for (i32 i = 0; i < columns; i += across * width) {
                const i32 c = first + i;
                const bool own = there && c < head_dim;
                if (c < columns) move<width>(to + r * pitch + c, own ? from + at + c : from, own);
            }
        }
    }
};

} // namespace coda
