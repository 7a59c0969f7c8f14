// fragments.cuh -- weights as they lie in a slot of stream_mma.cuh become operands of mma.sync, whose 16 rows
// they are; and its columns, the rows of A, as they lie beside them.
//
// A product has 16 k, of which a lane has four: two pairs. The order of k does not matter as long as both
// operands have the same, so a lane takes `lane_k` adjacent k of each 4 lane_k, which is one load of 16 bytes
// of a row of weights: lane l those from lane_k (l % 4) on. Product i of these has pairs 2 i and 2 i + 1.
#pragma once

#include "ptx/matrix.cuh"

namespace coda {

// Pairs of T in memory as pairs of Element, exactly: a word of 16-bit elements is one, one of bytes two.
template <class T, class Element> struct Widen;
template <class T> struct Widen<T, T> {
    DEV static void pairs(u32 word, u32 (&pair)[1]) { pair[0] = word; }
};
DEV u32 narrow_pair(bf16, u32 x) // of f16
{
    const Pair p = unpack2<f16>(x);
    return pack2<bf16>(p.a, p.b);
}
DEV u32 narrow_pair(f16, u32 x) { return x; }
template <class Element> struct Widen<f8e4m3, Element> {
    DEV static void pairs(u32 word, u32 (&pair)[2])
    {
        pair[0] = narrow_pair(Element{}, ptx::widen_e4m3(word));
        pair[1] = narrow_pair(Element{}, ptx::widen_e4m3(word >> 16));
    }
};
// The lower two bytes, each in the lower half of 16 bits; in the upper one.
DEV u32 spread_low(u32 x) { return (x & 0xff) | (x & 0xff00) << 8; }
DEV u32 spread_high(u32 x) { return (x & 0xff) << 8 | (x & 0xff00) << 16; }
template <class Element> struct Widen<f8e5m2, Element> {
    DEV static void pairs(u32 word, u32 (&pair)[2])
    {
        pair[0] = narrow_pair(Element{}, spread_high(word));
        pair[1] = narrow_pair(Element{}, spread_high(word >> 16));
    }
};
// 1024 + 128 + x in f16, whose ulp there is 1.
template <> struct Widen<i8, f16> {
    DEV static void pairs(u32 word, u32 (&pair)[2])
    {
        const u32 above = word ^ 0x80808080;
        pair[0] = ptx::subtract_pairs<f16>(spread_low(above) | 0x64006400, 0x64806480);
        pair[1] = ptx::subtract_pairs<f16>(spread_low(above >> 16) | 0x64006400, 0x64806480);
    }
};
// In bf16, whose ulp is 1 from 128 on: 128 and the lower 7 bits, less 128, or 256 of a negative number.
template <> struct Widen<i8, bf16> {
    DEV static u32 pair_of(u32 x)
    {
        return ptx::subtract_pairs<bf16>((x & 0x007f007f) | 0x43004300, (x & 0x00800080) | 0x43004300);
    }
    DEV static void pairs(u32 word, u32 (&pair)[2])
    {
        pair[0] = pair_of(spread_low(word));
        pair[1] = pair_of(spread_low(word >> 16));
    }
};

struct alignas(16) Words {
    u32 at[4];
};

// Of the rows of A, a warp's `run` k of a chunk: two pairs for each product.
template <int octets, int run, int lane_k> struct RightRun {
    static constexpr int products = run / 16, unit = 4 * lane_k;
    // Bytes between rows of A in a slot: eight lanes that read at a time are in different banks.
    static constexpr int pad = lane_k == 16 ? 16 : lane_k == 8 ? 64 : 32;
    u32 pair[octets][products][2];

    // `from`: this lane's row of the first octet, at the run. Of `live` k; rows from `rows` on are zeros.
    DEV void load(const u8 *from, int pitch, int row, int rows, int live)
    {
        constexpr int each = lane_k / 8; // loads of 16 bytes for a unit
        const int first = threadIdx.x % 4 * lane_k;
#pragma unroll
        for (int o = 0; o < octets; o++)
#pragma unroll
            for (int i = 0; i < run / unit * each; i++) {
                const int k = first + i / each * unit + i % each * 8;
                Words w = {};
                if (row + 8 * o < rows && k < live) w = *(const Words *)(from + 8 * o * pitch + 2 * k);
#pragma unroll
                for (int j = 0; j < 4; j++) pair[o][2 * i + j / 2][j % 2] = w.at[j];
            }
    }
};

// Rows of T, adjacent k by adjacent k, as they lie in a tensor: 16 rows in a slot, `pitch` bytes apart.
template <class T, class Element, int bk> struct RowFragments {
    static constexpr int size = sizeof(T), lane_k = 16 / size, unit = 4 * lane_k, words = 4 / size * size;
    static constexpr int pitch = bk * size + 64, tile_bytes = 16 * pitch;
    static_assert(bk * size % 128 == 0 && words == 4); // eight lanes that read have 64 bytes of two rows

    DEV static void load(u32 (&pair)[lane_k / 2], const u8 *from, bool live)
    {
        Words w = {};
        if (live) w = *(const Words *)from;
#pragma unroll
        for (int i = 0; i < 4; i++) {
            u32 two[lane_k / 8];
            Widen<T, Element>::pairs(w.at[i], two);
#pragma unroll
            for (int j = 0; j < lane_k / 8; j++) pair[i * (lane_k / 8) + j] = two[j];
        }
    }

    // Adds the products of a run of k, of which so many are live; it is at `from` in the tile's first row.
    template <int octets, int run>
    DEV static void multiply(float (&sum)[octets][4], const u8 *from, int live,
                             const RightRun<octets, run, lane_k> &x)
    {
        const int lane = threadIdx.x % 32, first = lane % 4 * lane_k;
        from += lane / 4 * pitch + first * size;
#pragma unroll
        for (int u = 0; u < run / unit; u++) {
            const bool here = u * unit + first < live;
            u32 upper[lane_k / 2], lower[lane_k / 2];
            load(upper, from + u * unit * size, here);
            load(lower, from + u * unit * size + 8 * pitch, here);
#pragma unroll
            for (int i = 0; i < lane_k / 4; i++) {
                const u32 w[4] = {upper[2 * i], lower[2 * i], upper[2 * i + 1], lower[2 * i + 1]};
#pragma unroll
                for (int o = 0; o < octets; o++) {
                    const u32(&b)[2] = x.pair[o][u * (lane_k / 4) + i];
                    ptx::mma<Element>(sum[o], w, b[0], b[1]);
                }
            }
        }
    }
};

} // namespace coda
