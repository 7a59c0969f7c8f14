// packed_rows.cuh -- weights in records (weights.cuh, lib/pack/pack.h) become operands of mma.sync, as a slot
// of stream_mma.cuh has them: the third kind of rows beside those of fragments.cuh.
//
// What the pairs that a lane finds (packed_codes.cuh) are short of a weight is done with the sums of a group
// of k, which have one scale. What codes count from leaves as zero points and minima come, with the sums of A
// over the group. These are products with a number, made once for all tiles. Where it is one number for all
// weights, a group's first product begins with it. Else, where a run has several groups, what A's sums are
// multiplied by is a product, too, of the groups of a run: in tf32, both operands as two numbers of 11 bits.
#pragma once

#include "tile/packed_codes.cuh"
#include "tile/two_levels.cuh"

namespace coda {

template <class Weights, class Element, int bk> struct PackedRows;
template <coda::Codes codes_of, Scales scales, Zeros zeros, int along, i64 columns, class Element, int bk>
struct PackedRows<Packed<codes_of, scales, zeros, along, columns>, Element, bk> {
    using W = Packed<codes_of, scales, zeros, along, columns>;
    using Codes = PackedCodes<W, Element>;
    using Work = typename Codes::Work;
    using Row = typename Codes::Row;
    static constexpr bool packed = true, digits = false;
    DEV static constexpr int right_place(int k) { return 2 * k; }
    static constexpr bool scaled = W::bits == 8 && is_bf16_of<Element>; // A's runs, see HalfRun
    static constexpr int pad = 32, tile_bytes = bk / W::step * W::bytes;
    // As many as there are registers for: codes of 8 bits take twice as many, scales of 16 k and upper bits
    // some.
    template <int octets>
    static constexpr int together = (W::bits == 8 && W::group >= 128) ||
                                            ((W::two_levels || W::bits % 4) &&
                                             (W::group < 32 || (octets > 1 && W::bits != 4)))
                                        ? 1
                                        : 2;
    template <int octets>
    static constexpr bool singly = octets == 1 || W::two_levels ||
                                   (codes_of != coda::Codes::e2m1 && W::group >= 128);
    template <int octets> static constexpr bool crowded = octets > 1 && W::group < 32;
    template <int octets> static constexpr bool ahead = octets == 1 && W::two_levels &&W::bits == 4;
    static constexpr int above = Codes::above;
    // What leaves with the sums of A: `above` and zero points, or minima.
    static constexpr bool wants_sums = W::minima || zeros == Zeros::points || Codes::few_bits;
    // By two_levels.cuh? Eight groups of a run leave no registers for that beside 16 rows.
    template <int octets> static constexpr bool of_levels = W::two_levels && (octets == 1 || W::group == 32);
    // Do products of a group begin with what codes count from, times A's sums? They do where a run has one,
    // and of two levels, unless there are too few registers for that.
    template <int groups, int octets>
    static constexpr bool begins = above &&zeros != Zeros::points &&
                                   (groups == 1 || (W::two_levels && octets == 1));
    static constexpr bool always_finite =
        !W::floats || codes_of == coda::Codes::e2m1; // whatever the bits are
    static_assert(zeros != Zeros::minimum || codes_of != coda::Codes::int8);

    template <int run> static constexpr int group = W::group < run ? W::group : run;

    // n times A's sums over so many products from `first` on, as a product has them that begins with them.
    template <int first, int products> DEV static void times(float (&to)[4], const u32 (*pair)[2], int n)
    {
        constexpr int chains = products < 4 ? 1 : 4;
        const u32 w = Codes::whole(n), a[4] = {w, w, w, w};
        float all[chains][4] = {};
#pragma unroll
        for (int q = 0; q < products; q++)
            ptx::mma<Work>(all[q % chains], a, pair[first + q][0], pair[first + q][1]);
#pragma unroll
        for (int i = 0; i < 4; i++) {
            to[i] = all[0][i];
#pragma unroll
            for (int c = 1; c < chains; c++) to[i] += all[c][i];
        }
    }
    // Of each group less what codes count from, times A's sums.
    template <int octets, int groups> struct Below {
        float at[octets][groups][4];
        template <int g, int products> DEV void make(const u32 (&pair)[octets][groups * products][2])
        {
            if constexpr (g < groups) {
#pragma unroll
                for (int o = 0; o < octets; o++)
                    times<g * products, products>(at[o][g], pair[o], -above - W::middle);
                make<g + 1, products>(pair);
            }
        }
    };
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
                const u32 ones = column == g % 4 * 2 + g / 4 ? Codes::whole(1) : 0;
                const u32 a[4] = {pair[0][q][0], last ? pair[last][q][0] : 0, pair[0][q][1],
                                  last ? pair[last][q][1] : 0};
                ptx::mma<Work>(sum[q % 2], a, ones, ones);
            }
#pragma unroll
            for (int i = 0; i < octets * ((groups + 3) / 4); i++) {
                const int o = i % octets, n = i / octets;
                split_tf32(part[o][n], sum[0][2 * o + n] + sum[1][2 * o + n]);
            }
        }
    };
    // Of 32 k each: a row of A is two rows of the product, as its pairs lie in registers.
    template <int octets, int run> struct SumsOf<octets, run, 4> {
        u32 part[octets][1][2];
        DEV void add_up(const u32 (&pair)[octets][run / 16][2])
        {
#pragma unroll
            for (int o = 0; o < octets; o++) {
                float sum[4] = {};
#pragma unroll
                for (int g = 0; g < 4; g++) {
                    const u32 ones = (int)threadIdx.x % 32 / 4 == 2 * g ? Codes::whole(1) : 0;
                    const u32(&p)[2] = pair[o][2 * g], (&q)[2] = pair[o][2 * g + 1];
                    const u32 a[4] = {p[0], p[1], q[0], q[1]};
                    ptx::mma<Work>(sum, a, ones, ones);
                }
                split_tf32(part[o][0], sum[0] + sum[2]);
            }
        }
    };
    template <int octets, int run> struct SumsOf<octets, run, 1> {
        float sum[octets][2];
        DEV void add_up(const u32 (&pair)[octets][run / 16][2])
        {
#pragma unroll
            for (int o = 0; o < octets; o++) {
                float all[4];
                times<0, run / 16>(all, pair[o], 1);
                sum[o][0] = all[0], sum[o][1] = all[1];
            }
        }
    };

    template <int octets, int run> struct Right {
        u32 pair[octets][run / 16][2];
        static constexpr int groups = run / group<run>;
        static constexpr bool from_below = begins<groups, octets>;
        SumsOf<octets, run> sums;
        Below<octets, from_below ? groups : 1> below;
        HalfRun<Element, octets, run / 16> half;

        DEV void load(const u8 *from, int live)
        {
            fetch(from, live);
            finish();
        }
        DEV void fetch(const u8 *from, int live)
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
        }
        DEV void finish()
        {
            if constexpr (scaled) half.convert(pair);
            if constexpr (from_below) below.template make<0, group<run> / 16>(pair);
            if constexpr (from_below ? W::minima && groups > 1 : wants_sums) sums.add_up(pair);
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
        if constexpr (Codes::unshifted) return {x.s * Codes::unit, 0};
        if constexpr (zeros == Zeros::minimum)
            return {x.s, several ? fmaf(-(float)above, x.s, x.m) : above ? x.m * (-1.0f / above) : x.m};
        else return {x.s, (several ? -x.s : -1) * (float)(above + x.z)};
    }
    // What a lane of a warp needs of each tile, whose run of a slot begins at k.
    template <int run> struct Lane : Codes::Lane {
        LevelLane<W> levels;
        DEV static Lane of(int k)
        {
            Lane x = {Codes::Lane::of(k)};
            if constexpr (W::two_levels) x.levels = LevelLane<W>::of(k);
            return x;
        }
    };
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
    template <bool across, int tiles, int octets, int run>
    DEV static void multiply(float (*sum)[octets][4], const Row (&row)[tiles][2], int k, int live,
                             const Right<octets, run> &x, const Lane<run> &lane)
    {
        if constexpr (of_levels<octets>)
            LevelProducts<PackedRows>::template multiply<across>(sum, row, live, x, lane);
        else if constexpr (scaled) {
            float part[tiles][octets][4] = {};
            multiply_run(part, row, k, live, x, lane);
#pragma unroll
            for (int i = 0; i < tiles; i++) x.half.add(sum[i], part[i]);
        } else multiply_run(sum, row, k, live, x, lane);
    }
    template <int tiles, int octets, int run>
    DEV static void multiply_run(float (*sum)[octets][4], const Row (&row)[tiles][2], int k, int live,
                                 const Right<octets, run> &x, const Lane<run> &lane)
    {
        constexpr int each = group<run>;
        constexpr bool masks = always_finite && each == run;
        RunScales<run / each> factors[tiles][2];
        typename Codes::template Run<run> codes[tiles][2];
#pragma unroll
        for (int i = 0; i < 2 * tiles; i++) {
            factors[i / 2][i % 2] = RunScales<run / each>::of_row(row[i / 2][i % 2], k, each);
            codes[i / 2][i % 2].load(row[i / 2][i % 2], lane);
        }
        if constexpr (wants_sums && run > each)
#pragma unroll
            for (int i = 0; i < tiles; i++) add_others(sum[i], factors[i], x.sums, live);
#pragma unroll
        for (int g = 0; g < run / each; g++) {
            if (!masks && g * each >= live) break;
            float part[tiles][octets][4] = {};
            multiply_group<begins<run / each, octets>>(part, codes, g, x);
#pragma unroll
            for (int i = 0; i < tiles; i++) {
                Scale scale[2] = {factors[i][0].of(g), factors[i][1].of(g)};
                if (masks && g * each >= live) scale[0] = scale[1] = {0, 0};
                add_scaled(sum[i], part[i], scale, x);
            }
        }
    }
    // The products of a group: `begins` with what is below.
    template <bool begins, int tiles, int octets, int run>
    DEV static void multiply_group(float (&part)[tiles][octets][4],
                                   const typename Codes::template Run<run> (&codes)[tiles][2], int g,
                                   const Right<octets, run> &x)
    {
        constexpr int products = group<run> / 16;
#pragma unroll
        for (int i = 0; i < products * tiles; i++) {
            const int n = i / tiles, q = g * products + n, tile = i % tiles;
            u32 u[2], l[2];
            codes[tile][0].pairs(q, u), codes[tile][1].pairs(q, l);
            const u32 w[4] = {u[0], l[0], u[1], l[1]};
#pragma unroll
            for (int o = 0; o < octets; o++)
                if (begins && !n)
                    ptx::mma<Work>(part[tile][o], x.below.at[o][g], w, x.pair[o][q][0], x.pair[o][q][1]);
                else ptx::mma<Work>(part[tile][o], w, x.pair[o][q][0], x.pair[o][q][1]);
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
            split_tf32(part, g * each < live ? factors[i % 2].mine[n].other : 0);
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
                const float all = begins<1, octets> ? x.below.at[o][0][e] : x.sums.sum[o][e % 2];
                if (zeros == Zeros::minimum) sum[o][e] = fmaf(s.other, all, sum[o][e]);
                else if (!begins<1, octets>) v = fmaf(s.other, all, v);
            }
            sum[o][e] = fmaf(s.s, v, sum[o][e]);
        }
    }
};

} // namespace coda
