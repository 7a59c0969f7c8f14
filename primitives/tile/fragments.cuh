// fragments.cuh -- weights as they lie in a slot of stream_mma.cuh become operands of mma.sync, whose 16 rows
// they are; and its columns, the rows of A, as they lie beside them.
//
// A product has 16 k, of which a lane has four: two pairs. The order of k does not matter as long as both
// operands have the same. Each kind of weights says how its rows lie in a slot, `pitch` bytes apart, and
// those of A, whose pitch is `pad` more than their bytes: lanes that read at a time are in different banks.
// `together`: tiles that a warp multiplies at a time, whose sums need not wait for each other. `singly`: are
// there registers for code for one of two, too? `crowded`: not even for the warp's number. `ahead`: for A's
// next run, and is that worth it? A run is what a warp multiplies of a chunk, that of A at right_place(its
// first k); of its k so many are live, from the first on, in eights. `digits`: see digit_rows.cuh.
#pragma once

#include "ptx/control.cuh"
#include "ptx/matrix.cuh"

namespace coda {

// What a lane needs of each tile and keeps, of rows that need nothing.
struct NoLane {
    DEV static NoLane of(int) { return {}; }
};

// Rows of 16-bit elements: ldmatrix brings a product's operand as it is.
template <class Element, int bk> struct HalfRows {
    static constexpr bool packed = false, digits = false;
    static constexpr int size = 2, pitch = 2 * bk + 16, tile_bytes = 16 * pitch, pad = 16;
    DEV static constexpr int right_place(int k) { return 2 * k; }
    template <int octets> static constexpr int together = 1;
    template <int octets> static constexpr bool singly = true;
    template <int octets> static constexpr bool crowded = false;
    template <int octets> static constexpr bool ahead = false;
    static_assert(2 * bk % 128 == 0);

    template <int> using Lane = NoLane;
    template <int octets, int run> struct Right {
        u32 pair[octets][run / 16][2];

        // `from`: the run of the first row of A.
        DEV void load(const u8 *from, int live)
        {
            const int lane = threadIdx.x % 32;
            const u32 at = ptx::shared_address(from) + lane % 8 * pitch + lane / 8 * 16; // the pitch of both
#pragma unroll
            for (int i = 0; i < octets * run / 32; i++) {
                const int octet = i / (run / 32), k = i % (run / 32) * 32;
                u32 m[4];
                ptx::ldmatrix(at + 8 * octet * pitch + 2 * k, m);
#pragma unroll
                for (int j = 0; j < 4; j++) pair[octet][k / 16 + j / 2][j % 2] = k + 8 * j < live ? m[j] : 0;
            }
        }
    };

    // Adds the products of a run, which is at `from` in the first row of each tile.
    template <int tiles, int octets, int run>
    DEV static void multiply(float (*sum)[octets][4], const u8 *const (&from)[tiles], int live,
                             const Right<octets, run> &x)
    {
        const int lane = threadIdx.x % 32, at = lane % 16 * pitch + lane / 16 * 16;
#pragma unroll
        for (int n = 0; n < tiles * run / 16; n++) {
            const int i = n / tiles, tile = n % tiles;
            u32 w[4];
            ptx::ldmatrix(ptx::shared_address(from[tile]) + at + 32 * i, w);
#pragma unroll
            for (int j = 0; j < 4; j++) w[j] = 16 * i + j / 2 * 8 < live ? w[j] : 0;
#pragma unroll
            for (int o = 0; o < octets; o++)
                ptx::mma<Element>(sum[tile][o], w, x.pair[o][i][0], x.pair[o][i][1]);
        }
    }
};

template <class Element> constexpr bool is_bf16_of = false; // NVRTC has no __is_same
template <> constexpr bool is_bf16_of<bf16> = true;

// Two of bf16 times 2^shift, in f16.
DEV u32 half_pair(u32 x, int shift)
{
    const u32 factor = (u32)(127 + shift) << 7;
    const Pair p = unpack2<bf16>(ptx::multiply_pairs<bf16>(x, factor * 0x00010001));
    return pack2<f16>(p.a, p.b);
}

// Weights of 8 bits are sooner f16 than bf16. So A's rows are, too: a run of bf16 times the power of two that
// brings its largest number to 2^14 or next to it. What f16 has not of the others is 2^-39 of that. Sums of
// the run are multiplied by `back`.
template <class Element, int octets, int products> struct HalfRun {
    static constexpr bool scaled = is_bf16_of<Element>;
    float back[octets][2]; // of this lane's two rows of each octet of A

    DEV void convert(u32 (&pair)[octets][products][2])
    {
        if constexpr (scaled)
#pragma unroll
            for (int o = 0; o < octets; o++) convert_octet(pair[o], back[o]);
    }
    DEV static void convert_octet(u32 (&pair)[products][2], float (&back)[2])
    {
        const int lane = threadIdx.x % 32;
        u32 most = 0; // without a sign bits are in the order of the numbers
#pragma unroll
        for (int i = 0; i < 2 * products; i++)
            most = ptx::larger_pairs(most, pair[i / 2][i % 2] & 0x7fff7fff);
        most = ptx::larger_pairs(most, most >> 16);
#pragma unroll
        for (int i = 1; i < 4; i *= 2) most = ptx::larger_pairs(most, __shfl_xor_sync(~0u, most, i));
        const int needed = 127 + 14 - (int)(most >> 7 & 255), shift = needed < 120 ? needed : 120;
#pragma unroll
        for (int i = 0; i < 2 * products; i++) pair[i / 2][i % 2] = half_pair(pair[i / 2][i % 2], shift);
        const float own = bits_float((u32)(127 - shift) << 23);
#pragma unroll
        for (int i = 0; i < 2; i++) back[i] = __shfl_sync(~0u, own, lane % 4 * 8 + 4 * i);
    }
    // Sums of the run come to those of all.
    DEV void add(float (&sum)[octets][4], const float (&part)[octets][4]) const
    {
#pragma unroll
        for (int i = 0; i < 4 * octets; i++) {
            float &to = sum[i / 4][i % 4];
            if constexpr (scaled) to = fmaf(back[i / 4][i % 2], part[i / 4][i % 4], to);
            else to += part[i / 4][i % 4];
        }
    }
};

// Four bytes as two pairs of Element, exactly.
DEV u32 narrow_pair(bf16, u32 x) // of f16
{
    const Pair p = unpack2<f16>(x);
    return pack2<bf16>(p.a, p.b);
}
DEV u32 narrow_pair(f16, u32 x) { return x; }

template <class T, class Element> struct Widen;
// By f16, which has all its values: to bf16 by fp32. What shifts and masks would leave to be multiplied by
// 2^120 in the end would make sums of subnormals, and a number of NaN.
template <class Element> struct Widen<f8e4m3, Element> {
    DEV static void pairs(u32 word, u32 (&pair)[2])
    {
        pair[0] = narrow_pair(Element{}, ptx::widen_e4m3(word));
        pair[1] = narrow_pair(Element{}, ptx::widen_upper_e4m3(word));
    }
};
// The upper bytes of f16.
template <class Element> struct Widen<f8e5m2, Element> {
    DEV static void pairs(u32 word, u32 (&pair)[2])
    {
        pair[0] = narrow_pair(Element{}, ptx::pick_bytes<0x1404>(word, 0));
        pair[1] = narrow_pair(Element{}, ptx::pick_bytes<0x3424>(word, 0));
    }
};
// 1024 + 128 + x in f16, whose ulp there is 1.
template <> struct Widen<i8, f16> {
    DEV static void pairs(u32 word, u32 (&pair)[2])
    {
        const u32 above = word ^ 0x80808080;
        pair[0] = ptx::subtract_pairs<f16>(ptx::pick_bytes<0x4140>(above, 0x64646464), 0x64806480);
        pair[1] = ptx::subtract_pairs<f16>(ptx::pick_bytes<0x4342>(above, 0x64646464), 0x64806480);
    }
};
// In bf16, whose ulp is 1 from 128 on: 128 and the lower 7 bits, less 128, or 256 of a negative number.
template <> struct Widen<i8, bf16> {
    DEV static u32 pair_of(u32 x)
    {
        return ptx::subtract_pairs<bf16>(ptx::bits_and_more<0x007f007f, 0x43004300>(x),
                                         ptx::bits_and_more<0x00800080, 0x43004300>(x));
    }
    DEV static void pairs(u32 word, u32 (&pair)[2])
    {
        pair[0] = pair_of(ptx::pick_bytes<0x4140>(word, 0));
        pair[1] = pair_of(ptx::pick_bytes<0x4342>(word, 0));
    }
};

struct alignas(16) Words {
    u32 at[4];
};

// Rows of bytes: a lane takes 16 adjacent k of each 64, lane l those from 16 (l % 4) on. Product i of these
// has pairs 2 i and 2 i + 1.
template <class T, class Element, int bk> struct ByteRows {
    static constexpr bool packed = false, digits = false;
    static constexpr int size = 1, lane_k = 16, unit = 4 * lane_k, pad = 16;
    DEV static constexpr int right_place(int k) { return 2 * k; }
    template <int octets> static constexpr int together = 2;
    template <int octets> static constexpr bool singly = true;
    template <int octets> static constexpr bool crowded = false;
    template <int octets> static constexpr bool ahead = false;
    static constexpr int pitch = bk + 64, tile_bytes = 16 * pitch;
    static_assert(sizeof(T) == size && bk % 128 == 0); // eight lanes that read have 64 bytes of two rows

    DEV static int first_k() { return threadIdx.x % 4 * lane_k; }

    template <int> using Lane = NoLane;
    template <int octets, int run> struct Right {
        u32 pair[octets][run / 16][2];
        HalfRun<Element, octets, run / 16> half;

        DEV void load(const u8 *from, int live)
        {
            constexpr int pitch = 2 * bk + pad;
            from += threadIdx.x % 32 / 4 * pitch + 2 * first_k();
#pragma unroll
            for (int i = 0; i < octets * run / 32; i++) {
                const int octet = i / (run / 32), at = i % (run / 32), k = at / 2 * unit + at % 2 * 8;
                Words w = {};
                if (k + first_k() < live) w = *(const Words *)(from + 8 * octet * pitch + 2 * k);
#pragma unroll
                for (int j = 0; j < 4; j++) pair[octet][2 * at + j / 2][j % 2] = w.at[j];
            }
            half.convert(pair);
        }
    };

    DEV static Words words(const u8 *from, bool live)
    {
        Words w = {};
        if (live) w = *(const Words *)from;
        return w;
    }

    template <int tiles, int octets, int run>
    DEV static void multiply(float (*sum)[octets][4], const u8 *const (&from)[tiles], int live,
                             const Right<octets, run> &x)
    {
        const int at = threadIdx.x % 32 / 4 * pitch + first_k();
        float part[tiles][octets][4] = {};
#pragma unroll
        for (int k = 0; k < run; k += unit) {
            Words upper[tiles], lower[tiles];
#pragma unroll
            for (int tile = 0; tile < tiles; tile++) {
                upper[tile] = words(from[tile] + at + k, k + first_k() < live);
                lower[tile] = words(from[tile] + at + k + 8 * pitch, k + first_k() < live);
            }
#pragma unroll
            for (int n = 0; n < tiles * lane_k / 4; n++) {
                const int i = n / tiles, tile = n % tiles;
                u32 u[2], l[2];
                Widen<T, f16>::pairs(upper[tile].at[i], u);
                Widen<T, f16>::pairs(lower[tile].at[i], l);
                const u32 w[4] = {u[0], l[0], u[1], l[1]};
#pragma unroll
                for (int o = 0; o < octets; o++) {
                    const u32(&b)[2] = x.pair[o][k / 16 + i];
                    ptx::mma<f16>(part[tile][o], w, b[0], b[1]);
                }
            }
        }
#pragma unroll
        for (int tile = 0; tile < tiles; tile++) x.half.add(sum[tile], part[tile]);
    }
};

} // namespace coda
