// attention_grad_simt.cuh -- the gradients of attention for any dtype, stride and GPU: plain fp32
// multiply-adds. attention_grad.cuh says what a unit is.
//
// Own rows belong to `lanes` lanes of one warp, as lanes.cuh says: thread (y, x) of a warp has rows
// y + 32 / lanes * i; of the walked rows x + lanes * j, of a result the columns 4 (x + lanes * c) .. + 3.
// Weights pass through shared memory, from the lanes of a row to themselves.
#pragma once
#include "attention/attention_grad.cuh"
#include "attention/lanes.cuh"

namespace coda {

template <class Config> struct GradUnitSimt {
    static constexpr i32 bm = Config::bm, bn = Config::bn, head_dim = Config::head_dim;
    static constexpr i32 threads = 128;
    typedef coda::Lanes<head_dim, bm> Lanes;
    typedef typename Lanes::Rows Rows;
    static constexpr i32 lanes = Lanes::lanes, apart = Lanes::apart, stages = 1;
    static constexpr i32 rows = Lanes::rows, chunks = Lanes::chunks, walked = bn / lanes;
    static constexpr bool wide = chunks > 8, weighs = true;

    // Blocks of an SM, where registers suffice.
    static constexpr i32 held = rows * ((wide ? 4 : 8) * chunks + 2 * walked) + 4 * walked + 32;
    static constexpr i32 blocks = wide ? 1 : held <= 160 ? 3 : held <= 210 ? 2 : 1;

    static constexpr i32 columns = Lanes::columns, pitch = Lanes::pitch, weight_pitch = bn + 8;
    template <i32 count> static constexpr i32 tile_bytes = 4 * count *pitch;

    typedef float Pairs[rows][walked];
    typedef float Sums[rows][chunks][4];

    DEV static i32 lane_column() { return Lanes::lane_column(); }
    DEV static i32 row_of(i32 i) { return Lanes::row_of(i); }
    DEV static i32 walked_of(i32 j) { return lane_column() + lanes * j; }

    template <bool quads, i32 count, class T, class Place>
    DEV static void copy(u8 *to, const T *from, Place place)
    {
        Rows::template copy<quads, count>((float *)to, from, place);
    }

    DEV static float4 quad(const float *p) { return Lanes::quad(p); }
    DEV static void multiply(Pairs &p, const u8 *own_rows, const u8 *walked_rows)
    {
        Lanes::multiply(p, (const float *)own_rows, (const float *)walked_rows);
    }
    // Columns past the last take those of the last quad, which is there.
    DEV static void accumulate(Sums &o, const Pairs &w, float *weights, const u8 *walked_rows)
    {
        const float *x = (const float *)walked_rows;
        weights += row_of(0) * weight_pitch;
        __syncwarp(); // the last ones have been read
#pragma unroll
        for (i32 i = 0; i < rows; i++)
#pragma unroll
            for (i32 j = 0; j < walked; j++) weights[apart * i * weight_pitch + walked_of(j)] = w[i][j];
        __syncwarp();
#pragma unroll 1
        for (i32 j = 0; j < bn; j++, x += pitch) {
            float weight[rows];
#pragma unroll
            for (i32 i = 0; i < rows; i++) weight[i] = weights[apart * i * weight_pitch + j];
#pragma unroll
            for (i32 c = 0; c < chunks; c++) {
                const i32 col = 4 * walked_of(c);
                const float4 v = quad(x + (c + 1 < chunks ? col : min(col, columns - 4)));
#pragma unroll
                for (i32 i = 0; i < rows; i++) {
                    o[i][c][0] = fmaf(weight[i], v.x, o[i][c][0]);
                    o[i][c][1] = fmaf(weight[i], v.y, o[i][c][1]);
                    o[i][c][2] = fmaf(weight[i], v.z, o[i][c][2]);
                    o[i][c][3] = fmaf(weight[i], v.w, o[i][c][3]);
                }
            }
        }
    }

    template <bool quads, class T, class Keeps>
    DEV static void write(const Sums &o, T *to, i64 time, i32 first, i32 end, float scale, Keeps keeps)
    {
#pragma unroll
        for (i32 i = 0; i < rows; i++) {
            const i32 at = first + row_of(i);
            if (at >= end) continue;
            const bool keep = keeps(at);
#pragma unroll
            for (i32 c = 0; c < chunks; c++) {
                const i32 col = 4 * walked_of(c);
                float x[4];
#pragma unroll
                for (i32 e = 0; e < 4; e++) x[e] = keep ? o[i][c][e] * scale : 0.0f;
                if (!quads) port::store_tail(to + at * time + col, x, 1, head_dim - col);
                else if (col < head_dim) port::store_piece(to + at * time + col, x);
            }
        }
    }
};

template <class Config> struct AttentionGradSimt : AttentionGrad<Config, GradUnitSimt<Config>> {
};

} // namespace coda
