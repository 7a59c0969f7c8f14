// two_levels.cuh -- products with weights whose scales have two levels: d, of 256 k, times whole numbers of 6
// or 8 bits, of 32 or 16 k each; perhaps with minima, likewise (weights.cuh).
//
// Of a run's groups the four lanes that have two rows of weights make the numbers of one or two each, of both
// rows at a time, and a product with a selection brings them to the others: it is exact, as a number of 11
// bits is one of tf32. With 8 rows of A, or codes of 4 bits, the sums of groups are multiplied by these whole
// numbers, and what a run has of them by d; with 16 and more bits, which leave fewer registers, by d times
// the number, which has two parts.
#pragma once

#include "tile/packed_codes.cuh"

namespace coda {

// A number as the sum of two that tf32 has: what follows the second one's bits is lost, 2^-22 of it.
DEV void split_tf32(u32 (&to)[2], float x)
{
    to[0] = float_bits(x) & 0xffffe000;
    to[1] = float_bits(x - bits_float(to[0]));
}

// What a lane needs to find its groups' numbers in a run that begins at k of a slot.
template <class W> struct LevelLane {
    typename W::LevelPlace place;
    u32 selection[2]; // of groups 0 and 1, and 2 and 3: this lane's row of a product's operand
    DEV static LevelLane of(int k)
    {
        const int lane = threadIdx.x % 32, t = lane % 4, column = lane / 4 % 2;
        const u32 record = k / W::step * W::bytes;
        LevelLane x;
        x.place = W::LevelPlace::of(lane / 4, k % W::step / 128, t);
        x.place.levels = ptx::kept(x.place.levels + record);
        x.place.lower = ptx::kept(x.place.lower + record);
        x.place.upper = ptx::kept(x.place.upper + record);
        x.place.shift = ptx::kept(x.place.shift), x.place.turn = ptx::kept(x.place.turn);
#pragma unroll
        for (int i = 0; i < 2; i++)
            x.selection[i] = ptx::kept(t == 2 * i + column ? float_bits(W::LevelPlace::unit) : 0);
        return x;
    }
    // Rows r and r + 8, r = lane / 4, lie in one record, or in the same half of two.
    template <bool across, class Row> DEV typename W::LevelWords words(const Row (&row)[2]) const
    {
        typename W::LevelWords x = place.words(row[0].first);
        if constexpr (across) {
            const typename W::LevelWords y = place.words(row[1].first);
            const auto pick = [&](u32 &a, u32 b) {
                a = row[0].half ? ptx::pick_bytes<0x7632>(a, b) : ptx::pick_bytes<0x5410>(a, b);
            };
            pick(x.d, y.d), pick(x.m, y.m), pick(x.upper, y.upper);
            if constexpr (!W::LevelPlace::bytes) pick(x.lower, y.lower);
            else
                x.lower = row[0].half ? ptx::pick_bytes<0x7351>(x.lower, y.lower)
                                      : ptx::pick_bytes<0x6240>(x.lower, y.lower);
        }
        return x;
    }
};

// Of a lane's groups and two rows: scales, as so many units, and minima.
template <class W> struct Level {
    Pair scale[2], minimum;
    DEV static Level of(const typename W::LevelPlace &at, const typename W::LevelWords &w)
    {
        using P = typename W::LevelPlace;
        constexpr u32 f1024 = 0x64006400, f1152 = 0x64806480; // whose ulp in f16 is 1
        Level x = {};
        if constexpr (P::bytes) {
            const u32 above = w.lower ^ 0x80808080;
            const u32 a = ptx::pick_bytes<0x4140>(above, f1024 | f1024 >> 8),
                      b = ptx::pick_bytes<0x4342>(above, f1024 | f1024 >> 8);
            x.scale[0] = unpack2<f16>(ptx::subtract_pairs<f16>(a, f1152));
            x.scale[1] = unpack2<f16>(ptx::subtract_pairs<f16>(b, f1152));
        } else {
            const u32 low = at.low(w), a = ptx::bits_and_more<P::scale_bits, f1024>(low),
                      b = ptx::bits_and_more<P::low_bits, f1024>(low) | (at.high(w) & P::high_bits);
            x.scale[0] = unpack2<f16>(ptx::subtract_pairs<f16>(a, f1024));
            x.minimum = unpack2<f16>(ptx::subtract_pairs<f16>(b, f1024));
        }
        return x;
    }
};

// Adds what the lanes of two rows have for a group each to what all of them have for it: [j][2 s + i] is of
// group 2 j + i and row s.
DEV void spread(float (*to)[4], const u32 (&own)[2], const u32 (&selection)[2])
{
#pragma unroll
    for (int j = 0; j < 2; j++) {
        const u32 b[1] = {selection[j]};
        ptx::mma_tf32(to[j], own, b);
    }
}
// The same of numbers of two parts.
DEV void spread(float (*to)[4], const u32 (&upper)[2], const u32 (&lower)[2], const u32 (&selection)[2])
{
    const u32 a[4] = {lower[0], lower[1], upper[0], upper[1]};
#pragma unroll
    for (int j = 0; j < 2; j++) {
        const u32 b[2] = {selection[j], selection[j]};
        ptx::mma_tf32(to[j], a, b);
    }
}

// `Rows`: see packed_rows.cuh.
template <class Rows> struct LevelProducts {
    using W = typename Rows::W;
    using Codes = typename Rows::Codes;
    using Row = typename Rows::Row;
    static constexpr int groups = 128 / W::group, own = groups / 4;
    static constexpr float unit = W::LevelPlace::unit;
    template <int octets> using Sum = float[octets][4];

    // Minima times A's sums and -dmin.
    template <int octets, class Sums>
    DEV static void add_minima(Sum<octets> &sum, Pair m, Pair minimum, const Sums &x)
    {
        const u32 a[2] = {float_bits(minimum.a), float_bits(minimum.b)}, twice[4] = {a[0], a[1], a[0], a[1]};
#pragma unroll
        for (int o = 0; o < octets; o++) {
            float all[4] = {};
            ptx::mma_tf32(all, twice, x.part[o][0]);
#pragma unroll
            for (int e = 0; e < 4; e++) sum[o][e] = fmaf(e / 2 ? m.b : m.a, all[e], sum[o][e]);
        }
    }
    // Of groups whose scales are s: what codes count from, and minima, times A's sums.
    template <int octets, class Sums>
    DEV static void add_others(Sum<octets> &sum, int n, const float (&s)[2], Pair m, Pair minimum,
                               const Sums &x)
    {
        u32 upper[2], lower[2];
#pragma unroll
        for (int j = 0; j < 2; j++) {
            const float least = j ? m.b * minimum.b : m.a * minimum.a;
            u32 part[2];
            split_tf32(part, fmaf(-unit * (Codes::above + W::middle), s[j], least));
            upper[j] = part[0], lower[j] = part[1];
        }
        const u32 both[4] = {lower[0], lower[1], upper[0], upper[1]};
#pragma unroll
        for (int o = 0; o < octets; o++) { // the product of both lower parts is too small
            const u32 b[2] = {x.part[o][n][0], x.part[o][n][0]}, rest[1] = {x.part[o][n][1]};
            ptx::mma_tf32(sum[o], upper, rest);
            ptx::mma_tf32(sum[o], both, b);
        }
    }

    // Adds the products of a run to the sums of tiles, if any of it is live: what follows the weights in
    // their last record are zeros.
    template <bool across, int tiles, int octets, class Right, class Lane>
    DEV static void multiply(float (*sum)[octets][4], const Row (&row)[tiles][2], int live, const Right &x,
                             const Lane &lane)
    {
        constexpr bool begins = Rows::template begins<groups, octets>, whole = begins || Codes::above == 0;
        if (live <= 0) return;
        typename Codes::template Run<128> codes[tiles][2];
        float scale[tiles][2 * own][4] = {}, d[tiles][2];
#pragma unroll
        for (int i = 0; i < tiles; i++) {
            codes[i][0].load(row[i][0], lane), codes[i][1].load(row[i][1], lane);
            const typename W::LevelWords w = lane.levels.template words<across>(row[i]);
            const Level<W> level = Level<W>::of(lane.levels.place, w);
            const Pair both = unpack2<f16>(w.d), m = unpack2<f16>(w.m);
            d[i][0] = Codes::unit * both.a, d[i][1] = Codes::unit * both.b;
            if constexpr (whole && W::minima) add_minima(sum[i], m, level.minimum, x.sums);
#pragma unroll
            for (int n = 0; n < own; n++) {
                const Pair a = level.scale[n];
                if constexpr (whole) {
                    const u32 own_scales[2] = {float_bits(a.a), float_bits(a.b)};
                    spread(&scale[i][2 * n], own_scales, lane.levels.selection);
                } else {
                    const float s[2] = {both.a * a.a, both.b * a.b};
                    u32 first[2], second[2];
                    split_tf32(first, s[0]), split_tf32(second, s[1]);
                    add_others(sum[i], n, s, m, level.minimum, x.sums);
                    const u32 upper[2] = {first[0], second[0]}, lower[2] = {first[1], second[1]};
                    spread(&scale[i][2 * n], upper, lower, lane.levels.selection);
                }
            }
        }
        float all[tiles][octets][4] = {};
#pragma unroll
        for (int g = 0; g < groups; g++) {
            float part[tiles][octets][4] = {};
            Rows::template multiply_group<begins>(part, codes, g, x);
#pragma unroll
            for (int i = 0; i < tiles * octets * 4; i++) {
                const int tile = i / 4 / octets, o = i / 4 % octets, e = i % 4;
                float &to = whole ? all[tile][o][e] : sum[tile][o][e];
                to = fmaf(scale[tile][g / 2][e / 2 * 2 + g % 2], part[tile][o][e], to);
            }
        }
        if constexpr (whole)
#pragma unroll
            for (int i = 0; i < tiles * octets * 4; i++) {
                const int tile = i / 4 / octets, o = i / 4 % octets, e = i % 4;
                sum[tile][o][e] = fmaf(d[tile][e / 2], all[tile][o][e], sum[tile][o][e]);
            }
    }
};

} // namespace coda
