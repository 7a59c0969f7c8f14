// matrix_tile.cuh -- matrices of 16-bit elements in shared memory whose rows have 32, 64 or 128, and operands
// of mma.sync. Of 128 columns each half is a matrix of its own. Pieces of 16 bytes lie in another order in
// neighbouring rows: eight rows of a column of pieces are on different banks, so ldmatrix takes them in one
// turn. Rows of 128 bytes lie as TMA swizzles them, and wgmma reads them.
#pragma once
#include "port/tile.cuh"
#include "ptx/control.cuh"
#include "ptx/copy.cuh"
#include "ptx/matrix.cuh"

namespace coda {

template <class T, i32 n, i32 rows> struct MatrixTile {
    static_assert(sizeof(T) == 2 && (n == 32 || n == 64 || n == 128));
    static constexpr i32 width = n < 64 ? n : 64, row_bytes = 2 * width, part_bytes = rows * row_bytes;

    DEV static i32 turn(i32 row) { return width == 32 ? row / 2 % 4 : row % 8; }
    // Bytes from the tile's first to those of an element.
    DEV static i32 offset(i32 row, i32 column)
    {
        return column / width * part_bytes + row_bytes * row + ((column % width / 8) ^ turn(row)) * 16 +
               column % 8 * 2;
    }
    // The place of [16, 16] elements from (row, column) on for ldmatrix: this lane's row of the four
    // matrices, the second of them below the first, or beside it.
    DEV static u32 matrices(u32 tile, i32 row, i32 column, bool below)
    {
        const i32 lane = threadIdx.x % 32, i = lane / 8, r = lane % 8, one = i % 2, two = i / 2;
        const i32 down = below ? one : two, along = below ? two : one;
        return tile + column / width * part_bytes + row_bytes * (row + r + 8 * down) +
               ((column % width / 8 + along) ^ turn(r)) * 16;
    }
};

// An operand a[16, 16] of mma.sync, and four floats of each of two neighbouring results, which lie alike.
typedef u32 Operand[4];

// x as the sum of two of 16 bits, the larger one first.
template <class T> DEV void split_pair(float a, float b, u32 &high, u32 &low)
{
    high = pack2<T>(a, b);
    const Pair h = unpack2<T>(high);
    low = pack2<T>(a - h.a, b - h.b);
}
// The same, and what is left, which is below 2^-17 of x.
template <class T> DEV void split_pair(float a, float b, u32 &high, u32 &low, u32 &rest)
{
    high = pack2<T>(a, b);
    const Pair h = unpack2<T>(high);
    split_pair<T>(a - h.a, b - h.b, low, rest);
}
// The same of a pair behind others, to which is added what the larger halves of those before it left, so that
// the sums of all smaller halves are nearly 0. The last one's b has what a's left, too.
template <bool last, class T> DEV void split_evenly(float a, float b, Pair &left, u32 &high, u32 &low)
{
    const float x = a + left.a;
    const float y = b + (last ? left.b + (x - to_float(from_float<T>(x))) : left.b);
    high = pack2<T>(x, y);
    const Pair h = unpack2<T>(high);
    low = pack2<T>(a - h.a, b - h.b);
    left = {x - h.a, y - h.b};
}
// The same of the last of some pairs, or of one before it, so that the sum of all is exact up to what is left
// of the last float: `left` is what is left of the pairs before.
template <bool last, class T> DEV void split_of_sum(float a, float b, Pair &left, u32 &high, u32 &low)
{
    high = pack2<T>(a, b);
    const Pair h = unpack2<T>(high);
    float x = a - h.a, y = b - h.b;
    if constexpr (last) x += left.a, y += left.b + (x - to_float(from_float<T>(x)));
    low = pack2<T>(x, y);
    const Pair l = unpack2<T>(low);
    left.a += x - l.a, left.b += y - l.b;
}
template <class T>
DEV void split_results(const float (&left)[4], const float (&right)[4], Operand &high, Operand &low)
{
    split_pair<T>(left[0], left[1], high[0], low[0]);
    split_pair<T>(left[2], left[3], high[1], low[1]);
    split_pair<T>(right[0], right[1], high[2], low[2]);
    split_pair<T>(right[2], right[3], high[3], low[3]);
}

// d[16, 16] += a b.
template <class T> DEV void multiply(float (&left)[4], float (&right)[4], const Operand &a, const Operand &b)
{
    ptx::mma<T>(left, a, b[0], b[1]);
    ptx::mma<T>(right, a, b[2], b[3]);
}

// A warp's results of 16 columns, from `column` on, and 64 rows, transposed: [16, 64] as neighbouring results
// of mma.sync. They become the columns' rows in a tile.
template <class Tile, class T> DEV void leave_turned(const float (&x)[32], i32 column, u32 tile)
{
#pragma unroll
    for (i32 t = 0; t < 4; t++) {
        u32 m[4];
#pragma unroll
        for (i32 i = 0; i < 4; i++) m[i] = pack2<T>(x[8 * t + 2 * i], x[8 * t + 2 * i + 1]);
        ptx::stmatrix_transposed(Tile::matrices(tile, 16 * t, column, false), m[0], m[1], m[2], m[3]);
    }
}
// A tile's rows of n columns, of which the first `count` are there, by `many` threads, which move `once` rows
// at a time: a thread's pieces of 16 bytes lie at one place of each of its rows.
template <class Tile, i32 n, i32 rows, i32 many> struct TileRows {
    static constexpr i32 pieces = n / 8, once = many / pieces, turns = rows / once;
    static_assert(many % pieces == 0 && rows % once == 0 && once % 8 == 0);
    struct alignas(16) Piece {
        u32 x[4];
    };
    i32 row, column;

    DEV explicit TileRows(i32 thread) : row((u32)thread / pieces), column((u32)thread % pieces * 8) {}
    DEV u32 offset() const { return Tile::offset(row, column); }

    template <bool whole, class T> DEV void bring(T *tile, const T *from, i64 time, i32 count) const
    {
        const u32 at = ptx::shared_address(tile) + offset();
        const T *piece = from + row * time + column;
#pragma unroll
        for (i32 i = 0; i < turns; i++, piece += once * time) {
            const bool there = whole || row + i * once < count;
            ptx::copy_async<16>(at + i * once * Tile::row_bytes, there ? piece : from, there ? 16 : 0);
        }
    }
    template <bool whole, class T> DEV void store(const T *tile, T *to, i64 time, i32 count) const
    {
        const u8 *const at = reinterpret_cast<const u8 *>(tile) + offset();
        T *piece = to + row * time + column;
#pragma unroll
        for (i32 i = 0; i < turns; i++, piece += once * time)
            if (whole || row + i * once < count)
                *reinterpret_cast<Piece *>(piece) =
                    *reinterpret_cast<const Piece *>(at + i * once * Tile::row_bytes);
    }
};
// Zeros are behind the last row that is there.
template <class Tile, i32 n, i32 rows, i32 many, class T>
DEV void bring_rows(i32 thread, T *tile, const T *from, i64 time, i32 count)
{
    const TileRows<Tile, n, rows, many> of(thread);
    if (count >= rows) of.template bring<true>(tile, from, time, count);
    else of.template bring<false>(tile, from, time, count);
}
template <class Tile, i32 n, i32 rows, i32 many, class T>
DEV void store_rows(i32 thread, const T *tile, T *to, i64 time, i32 count)
{
    const TileRows<Tile, n, rows, many> of(thread);
    if (count >= rows) of.template store<true>(tile, to, time, count);
    else of.template store<false>(tile, to, time, count);
}

} // namespace coda
