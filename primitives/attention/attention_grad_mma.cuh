// attention_grad_mma.cuh -- the gradients of attention by mma.sync: bf16 or f16, heads of up to 256 columns.
// attention_grad.cuh says what a unit is.
//
// A warp has 16 own rows, whose products with bn walked rows are fragments of m16n8k16: thread t has of rows
// t % 32 / 4 and 8 below two of every eight walked rows. Rounded and packed, these are the operand of the
// next product, of the rows themselves. Rows in shared memory are 16 bytes longer than they are: eight of
// them, one below the other, lie in different banks for ldmatrix.
#pragma once
#include "attention/attention_grad.cuh"
#include "ptx/matrix.cuh"

namespace coda {

template <class Config> struct GradUnitMma {
    static constexpr i32 bm = Config::bm, bn = Config::bn, head_dim = Config::head_dim, threads = 2 * bm;
    static constexpr i32 columns = (head_dim + 15) / 16 * 16, pitch = columns + 8;
    static constexpr i32 rows = 2, walked = bn / 4, stages = Config::stages, blocks = Config::residents;
    static constexpr bool wide = columns > 128, weighs = false;
    template <i32 count> static constexpr i32 tile_bytes = 2 * count *pitch;
    static_assert(head_dim % 8 == 0 && bm % 16 == 0 && bn % 16 == 0);

    typedef typename Config::Q T;
    typedef float Pairs[rows][walked];
    typedef float Sums[columns / 8][4];

    DEV static i32 lane() { return threadIdx.x % 32; }
    DEV static i32 own_row() { return 16 * ptx::uniform(threadIdx.x / 32); }
    DEV static i32 row_of(i32 i) { return own_row() + lane() / 4 + 8 * i; }
    DEV static i32 walked_of(i32 j) { return 8 * (j / 2) + 2 * (lane() % 4) + j % 2; }

    // Neighbouring threads take neighbouring pieces of 16 bytes; columns past the last are zeros.
    template <bool, i32 count, class Place> DEV static void copy(u8 *to, const T *from, Place place)
    {
        constexpr i32 pieces = columns / 8;
        const u32 shared = ptx::shared_address(to);
#pragma unroll 4
        for (i32 e = threadIdx.x; e < count * pieces; e += threads) {
            const i32 r = e / pieces, c = e % pieces * 8;
            i64 at = 0;
            const bool there = place(r, at) && c < head_dim;
            ptx::copy_async<16>(shared + 2 * (r * pitch + c), there ? from + at + c : from, there ? 16 : 0);
        }
    }

    // Of a tile the place of [16, 16] elements from (row, column) on for ldmatrix: this lane's row of the
    // four matrices, the second of them below the first, or beside it.
    DEV static u32 place(const u8 *tile, i32 row, i32 column, bool below)
    {
        const i32 i = lane() / 8, r = lane() % 8, one = i % 2 * 8, two = i / 2 * 8;
        return ptx::shared_address(tile) +
               2 * ((row + r + (below ? one : two)) * pitch + column + (below ? two : one));
    }

    DEV static void multiply(Pairs &p, const u8 *own_rows, const u8 *walked_rows)
    {
        float sum[bn / 8][4] = {};
        const u32 a_place = place(own_rows, own_row(), 0, true), b_place = place(walked_rows, 0, 0, false);
#pragma unroll
        for (i32 c = 0; c < columns; c += 16) {
            u32 a[4];
            ptx::ldmatrix(a_place + 2 * c, a);
#pragma unroll
            for (i32 n = 0; n < bn; n += 16) {
                u32 b[4];
                ptx::ldmatrix(b_place + 2 * (n * pitch + c), b);
                ptx::mma<T>(sum[n / 8], a, b[0], b[1]);
                ptx::mma<T>(sum[n / 8 + 1], a, b[2], b[3]);
            }
        }
#pragma unroll
        for (i32 j = 0; j < walked; j++) p[0][j] = sum[j / 2][j % 2], p[1][j] = sum[j / 2][2 + j % 2];
    }
    DEV static void accumulate(Sums &o, const Pairs &w, float *, const u8 *walked_rows)
    {
        const u32 b_place = place(walked_rows, 0, 0, true);
#pragma unroll
        for (i32 k = 0; k < bn; k += 16) {
            const i32 j = k / 4;
            const u32 a[4] = {pack2<T>(w[0][j], w[0][j + 1]), pack2<T>(w[1][j], w[1][j + 1]),
                              pack2<T>(w[0][j + 2], w[0][j + 3]), pack2<T>(w[1][j + 2], w[1][j + 3])};
#pragma unroll
            for (i32 c = 0; c < columns; c += 16) {
                u32 b[4];
                ptx::ldmatrix_transposed(b_place + 2 * (k * pitch + c), b);
                ptx::mma<T>(o[c / 8], a, b[0], b[1]);
                ptx::mma<T>(o[c / 8 + 1], a, b[2], b[3]);
            }
        }
    }

    template <bool, class Keeps>
    DEV static void write(const Sums &o, T *to, i64 time, i32 first, i32 end, float scale, Keeps keeps)
    {
#pragma unroll
        for (i32 i = 0; i < rows; i++) {
            const i32 at = first + row_of(i);
            if (at >= end) continue;
            const bool keep = keeps(at);
            T *const row = to + at * time + 2 * (lane() % 4);
#pragma unroll
            for (i32 c = 0; c < head_dim / 8; c++)
                port::store_pair(row + 8 * c,
                                 {keep ? o[c][2 * i] * scale : 0.0f, keep ? o[c][2 * i + 1] * scale : 0.0f});
        }
    }
};

template <class Config> struct AttentionGradMma : AttentionGrad<Config, GradUnitMma<Config>> {
};

} // namespace coda
