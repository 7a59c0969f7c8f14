// packed_rows.cuh -- weights in records (weights.cuh, lib/pack/pack.h) become operands of mma.sync, as a slot
// of stream_mma.cuh has them: the third kind of rows beside those of fragments.cuh.
//
// A lane finds the pairs of its rows by masks. What they are short of a weight is done with the sums of a
// group of k, which have one scale: codes of n bits count from 2^n, `above`, as they are the upper bits of a
// mantissa; it leaves as zero points and minima come, with the sums of A over the group. These are products
// with ones, made once for all tiles. Where a run has several groups, what A's sums are multiplied by is a
// product, too, of the groups of a run: in tf32, both operands as two numbers of 11 bits.
#pragma once

#include "tile/fragments.cuh"
#include "tile/weights.cuh"

namespace coda {

struct alignas(8) TwoWords {
    u32 at[2];
};

// The values of what e2m1_halves has: a sign, exponent and mantissa where bf16 has them, times 2^-126; or,
// three bits to the left, f16, times 2^-14. The product is exact, and so are sums that are no subnormals.
template <class Element> DEV u32 e2m1_value(u32 halves)
{
    if constexpr (is_bf16_of<Element>) return ptx::multiply_pairs<bf16>(halves, 0x7e807e80);
    else return ptx::multiply_pairs<f16>((halves & 0x80008000) | (halves & 0x01c001c0) << 3, 0x74007400);
}

// What weights of so many bits and elements of A are multiplied as.
template <class Element, bool bytes> struct MultipliedAs {
    typedef Element Type;
};
template <class Element> struct MultipliedAs<Element, true> {
    typedef f16 Type;
};

template <class Weights, class Element, int bk> struct PackedRows;
template <Codes codes_of, Scales scales, Zeros zeros, int along, i64 columns, class Element, int bk>
struct PackedRows<Packed<codes_of, scales, zeros, along, columns>, Element, bk> {
    using W = Packed<codes_of, scales, zeros, along, columns>;
    using Work = typename MultipliedAs<Element, W::bits == 8>::Type;
    static constexpr bool packed = true, digits = false, is_bf16 = is_bf16_of<Work>;
    DEV static constexpr int right_place(int k) { return 2 * k; }
    static constexpr bool scaled = W::bits == 8 && is_bf16_of<Element>; // A's runs, see HalfRun
    static constexpr int pad = 32, tile_bytes = bk / W::step * W::bytes;
    // As many as there are registers for: codes of 8 bits take twice as many, two levels of scales and upper
    // bits some.
    template <int octets>
    static constexpr int together = (W::bits == 8 && W::group >= 128) ||
                                            ((W::two_levels || W::bits % 4) && octets > 1)
                                        ? 1
                                        : 2;
    template <int octets>
    static constexpr bool singly = octets == 1 || (codes_of != Codes::e2m1 && W::group >= 128);
    template <int octets> static constexpr bool crowded = octets > 1 && W::group < 32;
    static constexpr bool few_bits = W::bits < 8 && codes_of != Codes::e2m1;
    static constexpr int above = few_bits ? 1 << W::bits : 0;
    // What leaves with the sums of A: `above` and zero points, or minima.
    static constexpr bool wants_sums = zeros != Zeros::none || few_bits;
    static constexpr bool always_finite = !W::floats || codes_of == Codes::e2m1; // whatever the bits are
    static_assert(zeros != Zeros::minimum || codes_of != Codes::int8);

    template <int run> static constexpr int group = W::group < run ? W::group : run;

    // Sums of A over the groups of a run, from its pairs, a product's operand of each octet of rows.
    // Of one group: of the two rows that a lane has of a product's result.
    template <int octets, int run, int groups = run / group<run>> struct SumsOf {
        u32 part[octets][(groups + 3) / 4][2]; // of row lane / 4, group lane % 4 and the fourth behind it
        // Rows of A are those of the product here, and groups its columns: even ones, then the odd ones.
        DEV void add_up(const u32 (&pair)[octets][run / 16][2])
        {
            constexpr int each = group<run> / 16, last = octets - 1;
            const int column = threadIdx.x % 32 / 4;
            float sum[2][4] = {}; // products that need not wait for each other
#pragma unroll
            for (int q = 0; q < run / 16; q++) {
                const int g = q / each;
                const u32 ones = column == g % 4 * 2 + g / 4 ? ones_of() : 0;
                const u32 a[4] = {pair[0][q][0], last ? pair[last][q][0] : 0, pair[0][q][1],
                                  last ? pair[last][q][1] : 0};
                ptx::mma<Work>(sum[q % 2], a, ones, ones);
            }
#pragma unroll
            for (int i = 0; i < octets * ((groups + 3) / 4); i++) {
                const int o = i % octets, n = i / octets;
                split(part[o][n], sum[0][2 * o + n] + sum[1][2 * o + n]);
            }
        }
    };
    template <int octets, int run> struct SumsOf<octets, run, 1> {
        float sum[octets][2];
        DEV void add_up(const u32 (&pair)[octets][run / 16][2])
        {
            constexpr int each = run / 16, chains = each < 4 ? each : 4;
            const u32 ones[4] = {ones_of(), ones_of(), ones_of(), ones_of()};
#pragma unroll
            for (int o = 0; o < octets; o++) {
                float all[chains][4] = {};
#pragma unroll
                for (int q = 0; q < each; q++)
                    ptx::mma<Work>(all[q % chains], ones, pair[o][q][0], pair[o][q][1]);
#pragma unroll
                for (int i = 0; i < 2; i++) {
                    sum[o][i] = all[0][i];
#pragma unroll
                    for (int c = 1; c < chains; c++) sum[o][i] += all[c][i];
                }
            }
        }
    };
    DEV static constexpr u32 ones_of() { return is_bf16 ? 0x3f803f80 : 0x3c003c00; }
    // A number as the sum of two that tf32 has: what follows the second one's bits is lost, 2^-22 of it.
    DEV static void split(u32 (&to)[2], float x)
    {
        to[0] = float_bits(x) & 0xffffe000;
        to[1] = float_bits(x - bits_float(to[0]));
    }

    template <int octets, int run> struct Right {
        u32 pair[octets][run / 16][2];
        SumsOf<octets, run> sums;
        HalfRun<Element, octets, run / 16> half;

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
            if constexpr (scaled) half.convert(pair);
            if constexpr (wants_sums) sums.add_up(pair);
        }
    };

    // A lane's row of weights: where its first record in the slot is, and in which half of that it lies.
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

    // Bits from `from` on, moved to where others from `to` on were.
    DEV static u32 moved(u32 x, int from, int to) { return from > to ? x >> (from - to) : x << (to - from); }
    // Pair p of word j, of 4 to 6 bits, as the upper bits of the mantissa of 2^bits: which is added to it.
    DEV static u32 integer_pair(u32 word, int j, int p, const u32 (&upper)[2])
    {
        constexpr int n = W::bits & 3, mantissa = is_bf16 ? 7 : 10, lowest = mantissa - W::bits;
        constexpr u32 both = 0x00010001, from = ((is_bf16 ? 127 : 15) + W::bits << mantissa) * both;
        const u32 x = ptx::bits_and_more<(15 << lowest) * both, from>(moved(word, 4 * p, lowest));
        if constexpr (n == 0) return x;
        const int at = n * (4 * j + p);
        return x | (moved(upper[at / 16], at % 16, lowest + 4) & ((1 << n) - 1 << lowest + 4) * both);
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
            if constexpr (W::bits == 8) Widen<typename ElementOf<codes_of>::Type, Work>::pairs(w, to);
            else
#pragma unroll
                for (int e = 0; e < 2; e++)
                    to[e] = codes_of == Codes::e2m1 ? e2m1_value<Work>(e2m1_halves(w, p + e))
                                                    : integer_pair(w, j, p + e, high[i]);
        }
    };

    // What a group's sums are multiplied by; and A's: of several groups, by that alone, of one, its minimum,
    // or what comes to its sums before they are multiplied.
    struct Scale {
        float s, other;
    };
    template <bool several> DEV static Scale scale_of(const Row &row, int k)
    {
        const typename W::Scale x = row.scale(k);
        if constexpr (zeros == Zeros::minimum) return {x.s, several ? fmaf(-(float)above, x.s, x.m) : x.m};
        else return {x.s, (several ? -x.s : -1) * (float)(above + x.z)};
    }
    // Scales of the groups of a run: the four lanes that have a row make every fourth one each, for all.
    template <int groups> struct RunScales {
        static constexpr int own = (groups + 3) / 4;
        Scale mine[own];

        DEV static RunScales of_row(const Row &row, int k, int each)
        {
            RunScales x;
            if constexpr (groups == 1) x.mine[0] = scale_of<false>(row, k);
            else
#pragma unroll
                for (int i = 0; i < own; i++)
                    x.mine[i] = scale_of<true>(
                        row, k + (4 * i + (int)threadIdx.x % (groups < 4 ? groups : 4)) * each);
            return x;
        }
        DEV Scale of(int g) const
        {
            if constexpr (groups == 1) return mine[0];
            const int lane = (threadIdx.x % 32 & ~3) + g % 4;
            return {__shfl_sync(~0u, mine[g / 4].s, lane), 0};
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
        if constexpr (scaled) {
            float part[tiles][octets][4] = {};
            multiply_run(part, row, k, live, x);
#pragma unroll
            for (int i = 0; i < tiles; i++) x.half.add(sum[i], part[i]);
        } else multiply_run(sum, row, k, live, x);
    }
    template <int tiles, int octets, int run>
    DEV static void multiply_run(float (*sum)[octets][4], const Row (&row)[tiles][2], int k, int live,
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
        if constexpr (wants_sums && run > each)
#pragma unroll
            for (int i = 0; i < tiles; i++) add_others(sum[i], factors[i], x.sums, live);
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
                    ptx::mma<Work>(part[tile][o], w, x.pair[o][q][0], x.pair[o][q][1]);
            }
#pragma unroll
            for (int i = 0; i < tiles; i++) {
                Scale scale[2] = {factors[i][0].of(g), factors[i][1].of(g)};
                if (masks && g * each >= live) scale[0] = scale[1] = {0, 0};
                add_scaled(sum[i], part[i], scale, x);
            }
        }
    }
    // What A's sums are multiplied by for the groups of a run that are live.
    template <int octets, int run, int groups>
    DEV static void add_others(float (&sum)[octets][4], const RunScales<groups> (&factors)[2],
                               const SumsOf<octets, run> &x, int live)
    {
        constexpr int own = (groups + 3) / 4, each = run / groups;
        u32 other[2][2 * own]; // upper and lower part, of both rows
#pragma unroll
        for (int i = 0; i < 2 * own; i++) {
            const int n = i / 2, g = 4 * n + threadIdx.x % 4;
            u32 part[2];
            split(part, g * each < live ? factors[i % 2].mine[n].other : 0);
            other[0][i] = part[0], other[1][i] = part[1];
        }
#pragma unroll
        for (int i = 0; i < 3 * octets; i++) { // the product of both lower parts is too small
            const int o = i % octets, upper = i / octets;
            u32 b[own];
#pragma unroll
            for (int n = 0; n < own; n++) b[n] = x.part[o][n][upper == 1];
            ptx::mma_tf32(sum[o], other[upper == 0], b);
        }
    }
    // `one`: a run has one group, whose sums want A's.
    template <int octets, int run>
    DEV static void add_scaled(float (&sum)[octets][4], const float (&part)[octets][4],
                               const Scale (&scale)[2], const Right<octets, run> &x)
    {
        constexpr bool one = wants_sums && group<run> == run;
#pragma unroll
        for (int i = 0; i < 4 * octets; i++) {
            const int o = i / 4, e = i % 4;
            const Scale &s = scale[e / 2];
            float v = part[o][e];
            if constexpr (one) {
                const float all = x.sums.sum[o][e % 2];
                if (zeros != Zeros::minimum) v = fmaf(s.other, all, v);
                else if (above) v = fmaf(-(float)above, all, v);
                if (zeros == Zeros::minimum) sum[o][e] = fmaf(s.other, all, sum[o][e]);
            }
            sum[o][e] = fmaf(s.s, v, sum[o][e]);
        }
    }
};

} // namespace coda
