// packed_rows.cuh -- weights in records (weights.cuh, lib/pack/pack.h) become operands of mma.sync, as a slot
// of stream_mma.cuh has them: the third kind of rows beside those of fragments.cuh.
//
// A lane finds the pairs of its rows by masks. What they are short of a weight is done with the sums of a
// group of k, which have one scale: codes count from 128 in bf16, `above`, which leaves afterwards as zero
// points and minima come, with the sums of A over the group. These are products with ones, made once for all
// tiles.
#pragma once

#include "tile/fragments.cuh"
#include "tile/weights.cuh"

namespace coda {

struct alignas(8) TwoWords {
    u32 at[2];
};

template <class Element> constexpr bool is_bf16_of = false; // NVRTC has no __is_same
template <> constexpr bool is_bf16_of<bf16> = true;

// The values of what e2m1_halves has: a sign, exponent and mantissa where bf16 has them, times 2^-126; or,
// three bits to the left, f16, times 2^-14. The product is exact, and so are sums that are no subnormals.
template <class Element> DEV u32 e2m1_value(u32 halves)
{
    if constexpr (is_bf16_of<Element>) return ptx::multiply_pairs<bf16>(halves, 0x7e807e80);
    else return ptx::multiply_pairs<f16>((halves & 0x80008000) | (halves & 0x01c001c0) << 3, 0x74007400);
}

template <class Weights, class Element, int bk> struct PackedRows;
template <Codes codes_of, Scales scales, Zeros zeros, int along, i64 columns, class Element, int bk>
struct PackedRows<Packed<codes_of, scales, zeros, along, columns>, Element, bk> {
    using W = Packed<codes_of, scales, zeros, along, columns>;
    static constexpr bool packed = true, is_bf16 = is_bf16_of<Element>;
    static constexpr int pad = 32, tile_bytes = bk / W::step * W::bytes;
    // As many as there are registers for: codes of 8 bits take twice as many, two levels of scales some.
    template <int octets>
    static constexpr int together = (W::bits == 8 && W::group >= 128) || (W::two_levels && octets > 1) ? 1
                                                                                                       : 2;
    static constexpr bool few_bits = W::bits < 8 && codes_of != Codes::e2m1;
    // In f16, where it would be 1024, and of groups of 16, whose sums want registers, it leaves at once.
    static constexpr bool keeps_above = is_bf16 && W::group >= 32;
    static constexpr int above = !few_bits ? 0 : keeps_above ? 128 : -W::middle;
    // What leaves with the sums of A: `above` and zero points, or minima.
    static constexpr bool wants_sums = zeros != Zeros::none || (few_bits && above + W::middle != 0);
    static constexpr bool always_finite = !W::floats || codes_of == Codes::e2m1; // whatever the bits are
    static_assert(zeros != Zeros::minimum || codes_of != Codes::int8);

    template <int run> static constexpr int group = W::group < run ? W::group : run;

    template <int octets, int run> struct Right {
        static constexpr int groups = run / group<run>;
        u32 pair[octets][run / 16][2];
        float sum[wants_sums ? octets : 1][wants_sums ? groups : 1][2]; // of this lane's two rows of A

        DEV void load(const u8 *from, int live)
        {
            constexpr int pitch = 2 * bk + pad;
            const int first = threadIdx.x % 4 * 4;
            from += threadIdx.x % 32 / 4 * pitch + 2 * first;
#pragma unroll
            for (int i = 0; i < octets * run / 16; i++) {
                const int octet = i / (run / 16), q = i % (run / 16);
                TwoWords w = {};
                if (16 * q + first < live) w = *(const TwoWords *)(from + 8 * octet * pitch + 32 * q);
                pair[octet][q][0] = w.at[0], pair[octet][q][1] = w.at[1];
            }
            if constexpr (wants_sums) add_up();
        }
        DEV void add_up()
        {
            constexpr u32 one = is_bf16 ? 0x3f803f80 : 0x3c003c00, each = group<run> / 16;
            const u32 ones[4] = {one, one, one, one};
#pragma unroll
            for (int i = 0; i < octets * groups; i++) {
                constexpr int chains = each < 4 ? each : 4; // products that need not wait for each other
                float all[chains][4] = {};
                float(&to)[2] = sum[i / groups][i % groups];
#pragma unroll
                for (int q = 0; q < (int)each; q++) {
                    const u32(&b)[2] = pair[i / groups][i % groups * each + q];
                    ptx::mma<Element>(all[q % chains], ones, b[0], b[1]);
                }
                to[0] = all[0][0], to[1] = all[0][1];
#pragma unroll
                for (int c = 1; c < chains; c++) to[0] += all[c][0], to[1] += all[c][1];
            }
        }
    };

    // Of a lane's row of weights: where its first record in the slot is, and in which half of that it lies.
    struct Row {
        const u8 *first;
        int half;
        DEV const u8 *record(int k) const { return first + k / W::step * W::bytes; }
        DEV typename W::Scale scale(int k) const
        {
            return W::scale(record(k), 8 * half + (int)threadIdx.x % 32 / 4, k % W::step);
        }
        // This lane's 16 bytes of the tile of a record that k is in.
        DEV Words codes(int k) const
        {
            const int place = k % W::step / W::tile * 1024 + half * 512 + (int)threadIdx.x % 32 * 16;
            return *(const Words *)(record(k) + place);
        }
        // Its upper bits: one word or two.
        DEV void upper(int k, u32 (&to)[2]) const
        {
            constexpr int n = W::bits & 3;
            const int lane = k % W::step / W::tile * 32 + (int)threadIdx.x % 32;
            const u32 *at = (const u32 *)(record(k) + W::high + (lane * 2 + half) * 4 * n);
#pragma unroll
            for (int i = 0; i < n; i++) to[i] = at[i];
        }
    };

    // Pair p of a word of 4 to 6 bits.
    DEV static u32 integer_pair(u32 word, int j, int p, const u32 (&upper)[2])
    {
        constexpr int n = W::bits & 3;
        const int at = n * (4 * j + p);
        u32 x = word >> 4 * p;
        if constexpr (n > 0) {
            constexpr u32 mask = ((1 << n) - 1) * 0x00010001;
            x = (x & 0x000f000f) | (upper[at / 16] >> at % 16 & mask) << 4;
        }
        constexpr u32 bits = n ? 0x003f003f : 0x000f000f;
        constexpr u32 from = is_bf16 ? 0x43004300 : 0x64006400; // 128, 1024, whose ulps are 1
        const u32 y = ptx::bits_and_more<bits, from>(x);
        return keeps_above ? y : ptx::subtract_pairs<Element>(y, from + W::middle * 0x00010001);
    }
    // The codes of a run that begins at k: a lane's 16 bytes of each tile of a record.
    template <int run> struct Codes16 {
        Words word[run / W::tile];
        u32 high[run / W::tile][2];
        DEV void load(const Row &row, int k)
        {
#pragma unroll
            for (int i = 0; i < run / W::tile; i++) {
                word[i] = row.codes(k + i * W::tile);
                if constexpr ((W::bits & 3) != 0) row.upper(k + i * W::tile, high[i]);
            }
        }
        // The pairs of product q, of 16 k.
        DEV void pairs(int q, u32 (&to)[2]) const
        {
            constexpr int products = W::tile / 16;
            const int i = q / products, j = q % products / (products / 4), p = q % (products / 4) * 2;
            const u32 w = word[i].at[j];
            if constexpr (W::bits == 8) Widen<typename ElementOf<codes_of>::Type, Element>::pairs(w, to);
            else
#pragma unroll
                for (int e = 0; e < 2; e++)
                    to[e] = codes_of == Codes::e2m1 ? e2m1_value<Element>(e2m1_halves(w, p + e))
                                                    : integer_pair(w, j, p + e, high[i]);
        }
    };

    // What a group's sums are multiplied by; and its minimum, or what is taken off for each unit of A.
    struct Scale {
        float s, other;
    };
    DEV static Scale scale_of(const Row &row, int k)
    {
        const typename W::Scale x = row.scale(k);
        return {x.s, zeros == Zeros::minimum ? x.m : -(float)(above + x.z)};
    }
    // Of the groups of a run: the four lanes that have a row make every fourth one each, for all of them.
    template <int groups> struct RunScales {
        static constexpr int own = (groups + 3) / 4;
        Scale mine[own];

        DEV static RunScales of_row(const Row &row, int k, int each)
        {
            RunScales x;
            if constexpr (groups == 1) x.mine[0] = scale_of(row, k);
            else
#pragma unroll
                for (int i = 0; i < own; i++)
                    x.mine[i] =
                        scale_of(row, k + (4 * i + (int)threadIdx.x % (groups < 4 ? groups : 4)) * each);
            return x;
        }
        DEV Scale of(int g) const
        {
            if constexpr (groups == 1) return mine[0];
            const int lane = (threadIdx.x % 32 & ~3) + g % 4;
            Scale x = {__shfl_sync(~0u, mine[g / 4].s, lane), 0};
            if constexpr (wants_sums) x.other = __shfl_sync(~0u, mine[g / 4].other, lane);
            return x;
        }
    };

    // Adds the products of a run that begins at k of the slot, of which so many are live, to the sums of
    // tiles, which need not wait for each other. A lane has two rows of each. What lies behind the live ones
    // is no weight: it is left out, or, where it is a number, its scale is 0, which takes fewer registers of
    // a run with one group.
    template <int tiles, int octets, int run>
    DEV static void multiply(float (*sum)[octets][4], const Row (&row)[tiles][2], int k, int live,
                             const Right<octets, run> &x)
    {
        constexpr int each = group<run>, products = each / 16;
        constexpr bool masks = always_finite && each == run;
        RunScales<run / each> factors[tiles][2];
        Codes16<run> codes[tiles][2];
#pragma unroll
        for (int i = 0; i < 2 * tiles; i++) {
            factors[i / 2][i % 2] = RunScales<run / each>::of_row(row[i / 2][i % 2], k, each);
            codes[i / 2][i % 2].load(row[i / 2][i % 2], k);
        }
#pragma unroll
        for (int g = 0; g < run / each; g++) {
            if (!masks && g * each >= live) break;
            float part[tiles][octets][4] = {};
#pragma unroll
            for (int i = 0; i < products * tiles; i++) {
                const int q = g * products + i / tiles, tile = i % tiles;
                u32 u[2], l[2];
                codes[tile][0].pairs(q, u), codes[tile][1].pairs(q, l);
                const u32 w[4] = {u[0], l[0], u[1], l[1]};
#pragma unroll
                for (int o = 0; o < octets; o++)
                    ptx::mma<Element>(part[tile][o], w, x.pair[o][q][0], x.pair[o][q][1]);
            }
#pragma unroll
            for (int i = 0; i < tiles; i++) {
                Scale scale[2] = {factors[i][0].of(g), factors[i][1].of(g)};
                if (masks && g * each >= live) scale[0] = scale[1] = {0, 0};
                add_scaled(sum[i], part[i], scale, x, g);
            }
        }
    }
    template <int octets, int run>
    DEV static void add_scaled(float (&sum)[octets][4], const float (&part)[octets][4],
                               const Scale (&scale)[2], const Right<octets, run> &x, int g)
    {
#pragma unroll
        for (int i = 0; i < 4 * octets; i++) {
            const int o = i / 4, e = i % 4;
            const Scale &s = scale[e / 2];
            float v = part[o][e];
            if constexpr (wants_sums) {
                const float all = x.sum[o][g][e % 2];
                if (zeros != Zeros::minimum) v = fmaf(s.other, all, v);
                else if (above) v = fmaf(-(float)above, all, v);
                if (zeros == Zeros::minimum) sum[o][e] = fmaf(s.other, all, sum[o][e]);
            }
            sum[o][e] = fmaf(s.s, v, sum[o][e]);
        }
    }
};

} // namespace coda
