// digit_rows.cuh -- weights of 4 bits in records (weights.cuh, lib/pack/pack.h) become operands of mma.sync
// of integers, for a row or two of A: another kind of rows beside those of packed_rows.cuh.
//
// Of the eight columns of a product with 16 bits a row of A leaves seven empty. Here it has four: a run of A
// is fixed-point numbers of 31 bits, whose unit is 2^-30 of the power of two above its largest number, and
// the four bytes of each, digits with signs, are columns of a product with codes, bytes without signs. So a
// product has 32 k instead of 16, four codes become bytes by a mask, and sums of a group are exact. What of A
// is smaller than the unit is lost: sums of fp32 lose as much. A run with an infinity makes sums that are
// NaN.
//
// Columns 4 m to 4 m + 3 are the digits of row m, the upper ones first. A lane has two neighbours, and its
// sums are of these; in the end the lanes' sums come together.
#pragma once

#include "tile/packed_rows.cuh"

namespace coda {

template <class Weights, class Element, int bk, int rows> struct DigitRows;
template <Scales scales, Zeros zeros, int along, i64 columns, class Element, int bk, int rows>
struct DigitRows<Packed<Codes::int4, scales, zeros, along, columns>, Element, bk, rows> {
    using W = Packed<Codes::int4, scales, zeros, along, columns>;
    using Rows = PackedRows<W, Element, bk>; // the same records
    using Row = typename Rows::Row;
    static constexpr bool packed = true, digits = true;
    static constexpr int pad = Rows::pad, tile_bytes = Rows::tile_bytes, left_rows = rows;
    template <int octets> static constexpr int together = 2;
    template <int octets> static constexpr bool singly = true;
    template <int octets> static constexpr bool crowded = false;
    template <int octets> static constexpr bool ahead = false;

    static constexpr int run = 128, products = run / 32, group = W::group < run ? W::group : run,
                         groups = run / group, each = group / 32; // products of a group
    static constexpr bool minima = zeros == Zeros::minimum;
    static_assert(groups <= 4 && (rows == 1 || rows == 2));

    // A run of A: a row's digits, what brings their sums back, and the sums of each 32 k.
    struct alignas(16) Run {
        u8 digits[8][128]; // of a column
        float back[2], sums[2][products];
    };
    DEV static constexpr int right_place(int k) { return k / run * (int)sizeof(Run); }
    // Where 16 bytes of a column are: those of lane t of products 2 pair and 2 pair + 1. Two columns that
    // lanes read at a time are in different banks.
    DEV static int place(int column, int pair, int t) { return (pair ^ column) % 2 * 64 + t * 16; }

    // ---- The supplier's ----

    // What a lane of the supplier has of a chunk: of each fourth run 16 k of a row, those of one lane in two
    // products. `chunks_ahead`: as it has registers for.
    static constexpr int chunks_ahead = 2;
    struct Supply {
        static constexpr int own = bk / run / 4;
        TwoWords word[rows][own][4];

        DEV static int run_of(int i) { return 4 * i + (int)threadIdx.x % 32 / 8; }
        DEV static int t() { return threadIdx.x % 4; }
        DEV static int pair() { return threadIdx.x % 8 / 4; }
        // `from`: the chunk of a row of A, of which so many are live.
        DEV void load(int row, const u8 *from, int live)
        {
#pragma unroll
            for (int i = 0; i < 4 * own; i++) {
                const int k = run_of(i / 4) * run + pair() * 64 + i % 4 * 16 + 4 * t();
                word[row][i / 4][i % 4] = {};
                if (k < live) word[row][i / 4][i % 4] = *(const TwoWords *)(from + 2 * k);
            }
        }
        DEV void store(int row, u8 *to) const
        {
#pragma unroll
            for (int i = 0; i < own; i++) store_run(word[row][i], row, *((Run *)to + run_of(i)));
        }
        DEV static void store_run(const TwoWords (&word)[4], int row, Run &to)
        {
            float x[16];
            int most = 0; // without a sign bits are in the order of the numbers
#pragma unroll
            for (int i = 0; i < 8; i++) {
                const Pair p = unpack2<Element>(word[i / 2].at[i % 2]);
                x[2 * i] = p.a, x[2 * i + 1] = p.b;
                most =
                    max(most, max((int)(float_bits(p.a) & 0x7fffffff), (int)(float_bits(p.b) & 0x7fffffff)));
            }
#pragma unroll
            for (int i = 1; i < 8; i *= 2) most = max(most, __shfl_xor_sync(~0u, most, i));
            const int shift = min(156 - (most >> 23), 126);
            const float factor = bits_float((u32)(127 + shift) << 23);
            u32 digit[4][4]; // of a column, of a word
#pragma unroll
            for (int i = 0; i < 4; i++) {
                u32 w[4];
                constexpr int order[4] = {0, 4, 1, 5};
#pragma unroll
                for (int j = 0; j < 4; j++) {
                    const float v = x[i / 2 * 8 + order[j] + i % 2 * 2];
                    w[j] = ((u32)truncate_i32(v * factor) + 0x00808080) ^ 0x00808080;
                }
                const u32 low[2] = {ptx::pick_bytes<0x5140>(w[0], w[1]), ptx::pick_bytes<0x5140>(w[2], w[3])};
                const u32 high[2] = {ptx::pick_bytes<0x7362>(w[0], w[1]),
                                     ptx::pick_bytes<0x7362>(w[2], w[3])};
                digit[3][i] = ptx::pick_bytes<0x5410>(low[0], low[1]);
                digit[2][i] = ptx::pick_bytes<0x7632>(low[0], low[1]);
                digit[1][i] = ptx::pick_bytes<0x5410>(high[0], high[1]);
                digit[0][i] = ptx::pick_bytes<0x7632>(high[0], high[1]);
            }
#pragma unroll
            for (int d = 0; d < 4; d++) {
                const int column = 4 * row + d;
                *(Words *)(to.digits[column] + place(column, pair(), t())) = {
                    {digit[d][0], digit[d][1], digit[d][2], digit[d][3]}};
            }
            if constexpr (minima)
#pragma unroll
                for (int i = 0; i < 2; i++) {
                    float sum = 0;
#pragma unroll
                    for (int j = 0; j < 8; j++) sum += x[8 * i + j];
#pragma unroll
                    for (int j = 1; j < 4; j *= 2) sum += __shfl_xor_sync(~0u, sum, j);
                    if (t() == 0) to.sums[row][2 * pair() + i] = sum;
                }
            if (threadIdx.x % 8 == 0)
                to.back[row] = bits_float(most < 0x7f800000 ? (u32)(127 - shift) << 23 : 0x7fc00000);
        }
    };

    // ---- The consumers' ----

    template <int octets, int run_> struct Right {
        static_assert(octets == 1 && run_ == run);
        u32 word[products][2];
        int sum[groups][2]; // of this lane's columns, or less zero points that all have
        float back;         // of what it makes of both
        float own[2];       // sums of a group of the row whose digits it has, and of the other one

        DEV void load(const u8 *from, int live)
        {
            const Run &x = *(const Run *)from;
            const int column = threadIdx.x % 32 / 4, t = threadIdx.x % 4;
#pragma unroll
            for (int i = 0; i < 2; i++) {
                const Words w = *(const Words *)(x.digits[column] + place(column, i, t));
#pragma unroll
                for (int j = 0; j < 4; j++) word[2 * i + j / 2][j % 2] = w.at[j];
            }
            back = x.back[t / 2 % rows] * (t % 2 ? 1.0f : 65536.0f);
            if constexpr (minima)
#pragma unroll
                for (int r = 0; r < rows; r++) {
                    own[r] = 0;
#pragma unroll
                    for (int i = 0; i < each; i++) own[r] += x.sums[r ^ t / 2 % rows][t % groups * each + i];
                    if (t >= groups || t * group >= live) own[r] = 0;
                }
            else {
                const u32 ones = zeros == Zeros::none ? 0x01010101 * W::middle : 0x01010101;
                const u32 a[4] = {ones, ones, ones, ones};
#pragma unroll
                for (int g = 0; g < groups; g++) {
                    int all[4] = {};
#pragma unroll
                    for (int i = 0; i < each; i++)
                        ptx::mma_bytes(all, a, word[g * each + i][0], word[g * each + i][1]);
                    sum[g][0] = -all[0], sum[g][1] = -all[1];
                }
            }
        }
    };

    template <int run_> using Lane = typename Rows::template Lane<run_>;

    // Of the groups of a run, of which the four lanes that have a row of weights make one each.
    struct RunScales {
        typename W::Scale mine;
        DEV static RunScales of_row(const Row &row, int k, int live)
        {
            const int g = groups == 1 ? 0 : (int)threadIdx.x % groups;
            RunScales x = {row.scale(k + g * group)};
            if (g * group >= live) x.mine = {};
            return x;
        }
        DEV float s(int g) const
        {
            return groups == 1 ? mine.s : __shfl_sync(~0u, mine.s, (threadIdx.x % 32 & ~3) + g);
        }
        DEV int z(int g) const
        {
            return groups == 1 ? mine.z : __shfl_sync(~0u, mine.z, (threadIdx.x % 32 & ~3) + g);
        }
    };

    // Adds the products of a run that begins at k of the slot to the sums of tiles: [0] and [2] have those of
    // this lane's columns with its two rows, [1] and [3] minima times sums of the other row of A; of one
    // row these are all minima.
    template <bool across, int tiles, int octets, int run_>
    DEV static void multiply(float (*sum)[octets][4], const Row (&row)[tiles][2], int k, int live,
                             const Right<octets, run_> &x, const Lane<run_> &lane)
    {
        if constexpr (W::two_levels) return multiply_levels<across>(sum, row, live, x, lane);
        RunScales scale[tiles][2];
        Words codes[tiles][2];
#pragma unroll
        for (int i = 0; i < 2 * tiles; i++) {
            scale[i / 2][i % 2] = RunScales::of_row(row[i / 2][i % 2], k, live);
            codes[i / 2][i % 2] = row[i / 2][i % 2].codes(lane);
        }
        float part[tiles][2] = {};
#pragma unroll
        for (int g = 0; g < groups; g++) {
            int all[tiles][4];
#pragma unroll
            for (int i = 0; i < 4 * tiles; i++)
                all[i / 4][i % 4] = minima                 ? 0
                                    : zeros == Zeros::none ? x.sum[g][i % 2]
                                                           : scale[i / 4][i % 4 / 2].z(g) * x.sum[g][i % 2];
            multiply_group(all, codes, g, x);
#pragma unroll
            for (int i = 0; i < 2 * tiles; i++)
                add_group(part[i / 2][i % 2], all[i / 2], i % 2, scale[i / 2][i % 2].s(g));
        }
#pragma unroll
        for (int i = 0; i < 2 * tiles; i++)
            add_run(sum[i / 2][0], i % 2, x.back, part[i / 2][i % 2], scale[i / 2][i % 2].mine.m, x);
    }
    template <int tiles, class Right>
    DEV static void multiply_group(int (&all)[tiles][4], const Words (&codes)[tiles][2], int g,
                                   const Right &x)
    {
#pragma unroll
        for (int i = 0; i < each * tiles; i++) {
            const int j = g * each + i / tiles, tile = i % tiles;
            const u32 u = codes[tile][0].at[j], l = codes[tile][1].at[j];
            const u32 w[4] = {u & 0x0f0f0f0f, l & 0x0f0f0f0f, u >> 4 & 0x0f0f0f0f, l >> 4 & 0x0f0f0f0f};
            ptx::mma_bytes(all[tile], w, x.word[j][0], x.word[j][1]);
        }
    }
    DEV static void add_group(float &part, const int (&all)[4], int side, float scale)
    {
        part = fmaf(scale, (float)(all[2 * side] * 256 + all[2 * side + 1]), part);
    }
    template <class Right>
    DEV static void add_run(float (&to)[4], int side, float back, float part, float m, const Right &x)
    {
        to[2 * side] = fmaf(back, part, to[2 * side]);
        if constexpr (minima) {
            if (rows == 2) to[2 * side] = fmaf(m, x.own[0], to[2 * side]);
            to[2 * side + 1] = fmaf(m, x.own[rows - 1], to[2 * side + 1]);
        }
    }
    // The same of two levels: a run's sums of whole numbers are multiplied by d.
    template <bool across, int tiles, int octets, int run_>
    DEV static void multiply_levels(float (*sum)[octets][4], const Row (&row)[tiles][2], int live,
                                    const Right<octets, run_> &x, const Lane<run_> &lane)
    {
        static_assert(groups == 4);
        if (live <= 0) return;
        Words codes[tiles][2];
        float scale[tiles][2][4] = {}, part[tiles][2] = {}, d[tiles][2], m[tiles][2];
#pragma unroll
        for (int i = 0; i < tiles; i++) {
            const typename W::LevelWords w = lane.levels.template words<across>(row[i]);
            const auto level = Level<W>::of(lane.levels.place, w);
            const Pair own = unpack2<f16>(w.d), least = unpack2<f16>(w.m);
            const u32 both[2] = {float_bits(level.scale[0].a), float_bits(level.scale[0].b)};
            d[i][0] = x.back * own.a, d[i][1] = x.back * own.b;
            m[i][0] = least.a * level.minimum.a, m[i][1] = least.b * level.minimum.b;
            codes[i][0] = row[i][0].codes(lane), codes[i][1] = row[i][1].codes(lane);
            spread(scale[i], both, lane.levels.selection);
        }
#pragma unroll
        for (int g = 0; g < groups; g++) {
            int all[tiles][4] = {};
            multiply_group(all, codes, g, x);
#pragma unroll
            for (int i = 0; i < 2 * tiles; i++)
                add_group(part[i / 2][i % 2], all[i / 2], i % 2, scale[i / 2][g / 2][i % 2 * 2 + g % 2]);
        }
#pragma unroll
        for (int i = 0; i < 2 * tiles; i++)
            add_run(sum[i / 2][0], i % 2, d[i / 2][i % 2], part[i / 2][i % 2], m[i / 2][i % 2], x);
    }

    // A lane's sums of all runs become those of row 0 and 1, in the lanes whose columns these are.
    DEV static void finish(float (&sum)[4])
    {
#pragma unroll
        for (int side = 0; side < 2; side++) {
            float own = sum[2 * side] + __shfl_xor_sync(~0u, sum[2 * side], 1);
            float other = sum[2 * side + 1] + __shfl_xor_sync(~0u, sum[2 * side + 1], 1);
            if (rows == 1) other += __shfl_xor_sync(~0u, other, 2), own += other;
            else own += __shfl_xor_sync(~0u, other, 2);
            sum[2 * side] = own, sum[2 * side + 1] = __shfl_xor_sync(~0u, own, 2);
        }
    }
};

} // namespace coda
