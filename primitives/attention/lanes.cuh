// lanes.cuh -- which rows of a tile belong to which lanes where fp32 multiply-adds make all products, and
// these products: of a block of 4 warps, for attention_simt.cuh and attention_grad_simt.cuh.
//
// Of bm own rows a warp has a quarter, and each of them belongs to `lanes` of its lanes, of which lane x has
// column x + lanes * j of the other tile's rows: thread (y, x) has rows y + apart * i. Eight neighbouring
// threads have two rows, so their 16-byte reads of rows that are an odd number of quads apart do not meet.
#pragma once
#include "attention/rows.cuh"
#include "ptx/control.cuh"

namespace coda {

template <i32 head_dim, i32 bm> struct Lanes {
    static constexpr i32 warps = 4, threads = 32 * warps;
    static constexpr i32 lanes = head_dim <= 256 ? 8 : 16, apart = 32 / lanes; // rows of a warp's lanes
    static constexpr i32 own = bm / warps, rows = own / apart;
    static constexpr i32 chunks = (head_dim + 4 * lanes - 1) / (4 * lanes); // quads of a thread, of a row

    typedef coda::Rows<head_dim, threads> Rows;
    static constexpr i32 columns = Rows::columns, pitch = Rows::pitch;

    DEV static i32 lane_row() { return (threadIdx.x & 1) + threadIdx.x % 32 / (2 * lanes) * 2; } // y
    DEV static i32 lane_column() { return threadIdx.x / 2 % lanes; }                             // x
    DEV static i32 first_row() { return own * ptx::uniform(threadIdx.x / 32); } // of the warp
    DEV static i32 row_of(i32 i) { return first_row() + lane_row() + apart * i; }

    DEV static float4 quad(const float *p) { return *reinterpret_cast<const float4 *>(p); }
    DEV static float dot(float4 a, float4 b, float sum)
    {
        return fmaf(a.w, b.w, fmaf(a.z, b.z, fmaf(a.y, b.y, fmaf(a.x, b.x, sum))));
    }

    // p[i][j] = a . b for the thread's own rows of a and its rows of b, tiles in shared memory.
    template <i32 others> DEV static void multiply(float (&p)[rows][others], const float *a, const float *b)
    {
        a += row_of(0) * pitch, b += lane_column() * pitch;
#pragma unroll
        for (i32 i = 0; i < rows; i++)
#pragma unroll
            for (i32 j = 0; j < others; j++) p[i][j] = 0.0f;
#pragma unroll 1
        for (i32 c = 0; c < columns; c += 4) {
            float4 w[others];
#pragma unroll
            for (i32 j = 0; j < others; j++) w[j] = quad(b + lanes * j * pitch + c);
#pragma unroll
            for (i32 i = 0; i < rows; i++) {
                const float4 v = quad(a + apart * i * pitch + c);
#pragma unroll
                for (i32 j = 0; j < others; j++) p[i][j] = dot(v, w[j], p[i][j]);
            }
        }
    }
};

} // namespace coda
