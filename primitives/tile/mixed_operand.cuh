// mixed_operand.cuh -- weights of few bits as they lie in a slot of gemm_sm90_mixed.cuh become operand A of
// wgmma, in registers: 64 rows of a warpgroup, of which a warp has 16.
//
// Of each product's 16 k a lane has two neighbours of each 8, of row lane / 4 and of the one 8 below. Records
// (weights.cuh) have four neighbours of each 16 together, as mma.sync of both operands in registers wants
// them. wgmma has its other operand in the order of memory, so a lane reads the words of the two lanes that
// have its pairs, and takes half of each.
//
// A batch is what is decoded at one time: up to 64 k. Codes are exact in 16 bits. What their scales do is one
// of three things:
//     folds     the scale has few bits, too: the product with it is exact in 16 bits
//     promotes  the sums of a group are multiplied by its scale and added to those of all groups; of less
//               than 128 k product by product (mixed_groups.cuh), of many rows in place (mixed_in_place.cuh)
//     splits    a weight with a minimum becomes two of bf16: its upper 16 bits and what these leave
#pragma once

#include "tile/packed_rows.cuh"
#include "tile/resources.cuh"

namespace coda {

// What a lane takes of the words of the lanes that have its pairs.
DEV int pair_lane() { return threadIdx.x % 4 / 2; } // of the first 8 k; the others are two lanes further on
DEV int pair_half() { return threadIdx.x % 2; }
DEV int lane_row() { return threadIdx.x % 32 / 4; }

template <class Weights, class Element, int rows> struct PackedOperand;
template <Codes codes_of, Scales scales, Zeros zeros, int along, i64 columns, class Element, int rows>
struct PackedOperand<Packed<codes_of, scales, zeros, along, columns>, Element, rows> {
    using W = Packed<codes_of, scales, zeros, along, columns>;
    static constexpr bool is_bf16 = is_bf16_of<Element>;
    static constexpr bool folds = W::narrow && (is_bf16 || W::small);
    static constexpr bool splits = !folds && zeros == Zeros::minimum;
    static constexpr bool promotes = !folds && !splits,
                          by_products =
                              promotes && W::group < 128 && !(W::bits == 8 && W::group > 16 && rows > 64);
    static_assert(!splits || is_bf16);

    static constexpr int bk = W::step < 128 ? 128 : W::step; // k of a slot
    static constexpr int batch = promotes && W::group < 64 ? 32 : 64;
    static constexpr int promotion = promotes ? W::group : 0; // k
    static constexpr int products = batch / 16, parts = splits ? 2 : 1;
    static constexpr int tile_bytes = bk / W::step * W::bytes; // of 16 rows in a slot
    static constexpr int align = 128;
    // Scales of a batch, and products that have one.
    static constexpr int groups = W::group < batch ? batch / W::group : 1, each = products / groups;

    // Codes of 4 bits are subnormal numbers as they lie: a lane masks those of its pairs, where they are in
    // a word, and one multiply-add makes them what they mean, over `unit`. Of more rows it gained nothing.
    static constexpr bool unshifted = promotes && !by_products && codes_of == Codes::int4 && rows <= 64;
    static constexpr float unit = !unshifted ? 1 : is_bf16 ? 0x1p6f : 0x1p14f;

    // Registers of products: part, then those of each product.
    using Fragments = u32[parts][products][4];

    static constexpr int words = W::bits == 8 ? batch / 16 : batch / 32; // of a row, for each 8 k of 16
    template <int n> struct alignas(4 * n) Piece {
        u32 at[n];
    };

    const u8 *first; // the warp's 16 rows of the slot

    DEV const u8 *record(int k) const { return first + k / W::step * W::bytes; }
    DEV typename W::Scale scale(int k, int half) const
    {
        return W::scale(record(k), 8 * half + lane_row(), k % W::step);
    }

    // The words that have the pairs of `half`'s row in the first, or last, 8 of each 16 k from k on; what a
    // lane does not want of them is shifted out.
    template <bool shifts> DEV void load(u32 (&to)[words], int k, int half, int last) const
    {
        const int lane = lane_row() * 4 + pair_lane() + 2 * last, in = k % W::step;
        const u8 *at = record(k) + in / W::tile * 1024 + half * 512 + lane * 16 +
                       in % W::tile / (W::bits == 8 ? 16 : 32) * 4;
        const Piece<words> piece = *(const Piece<words> *)at;
#pragma unroll
        for (int i = 0; i < words; i++) {
            const u32 x = piece.at[i];
            if constexpr (W::bits == 8) to[i] = x >> 16 * pair_half();
            else if constexpr (codes_of == Codes::e2m1) to[i] = pair_half() ? x << 4 | x >> 28 : x;
            else to[i] = shifts ? x >> 4 * pair_half() : x;
        }
    }
    // The upper bits of the same, which one word has.
    DEV u32 upper(int k, int half, int last) const
    {
        constexpr int n = W::bits & 3;
        const int lane = lane_row() * 4 + pair_lane() + 2 * last, in = k % W::step;
        const u8 *at = record(k) + W::high + ((in / W::tile * 32 + lane) * 2 + half) * 4 * n +
                       n * (in % W::tile / 32 * 4) / 16 * 4;
        return *(const u32 *)at >> n * pair_half();
    }

    // Pair of product q, 16 k, of a batch that begins at k; with `powers` times `by`, of which `below` is a
    // multiple already, and is added.
    template <bool powers = false>
    DEV static u32 integer_pair(u32 word, int k, int q, u32 upper, u32 below, u32 by = 0)
    {
        const u32 x = counted_pair(word, k, q, upper);
        if constexpr (powers) return ptx::multiply_add_pairs<bf16>(x, by, below);
        else return ptx::subtract_pairs<Element>(x, below);
    }
    // The same with 128, or 1024, from which it counts.
    DEV static u32 counted_pair(u32 word, int k, int q, u32 upper)
    {
        constexpr int n = W::bits & 3;
        u32 x = word >> 8 * (q % 2);
        if constexpr (n > 0) {
            constexpr u32 mask = ((1 << n) - 1) * 0x00010001;
            const int at = n * (k % W::tile / 32 * 4 + q / 2 * 4 + q % 2 * 2) % 16;
            x = (x & 0x000f000f) | (upper >> at & mask) << 4;
        }
        constexpr u32 bits = n ? 0x003f003f : 0x000f000f;
        constexpr u32 from = is_bf16 ? 0x43004300 : 0x64006400; // 128, 1024, whose ulps are 1
        return ptx::bits_and_more<bits, from>(x);
    }
    // `word` is turned to the left by 4 already where the pair is the second or the fourth one; which one of
    // four it is, 2 (q % 2) + pair_half(), only the lane knows.
    template <bool powers = false> DEV static u32 e2m1_pair(u32 word, int q, u32 by = 0)
    {
        const u32 x = e2m1_value<Element>(q % 2 ? e2m1_last_halves(word, pair_half()) : e2m1_halves(word, 0));
        return powers ? ptx::multiply_pairs<Element>(x, by) : x;
    }
    template <bool powers = false> DEV static u32 byte_pair(u32 word, u32 below, u32 by = 0)
    {
        u32 two[2];
        Widen<typename ElementOf<codes_of>::Type, Element>::pairs(word, two);
        if constexpr (powers) return ptx::multiply_add_pairs<bf16>(two[0], by, below);
        if constexpr (zeros == Zeros::points) two[0] = ptx::subtract_pairs<Element>(two[0], below);
        return two[0];
    }
    // What is taken off a pair: zero points, and 128 or 1024, from which integers count.
    DEV static u32 below(const typename W::Scale &s)
    {
        constexpr u32 from = is_bf16 ? 0x43004300 : 0x64006400;
        const float z = (float)s.z;
        if constexpr (W::bits == 8) return zeros == Zeros::points ? pack2<Element>(z, z) : 0;
        else return from + (u32)s.z * 0x00010001;
    }

    // A scale's sign and exponent, a power of two, twice; and the mantissas, in [1, 2), of the group k is in.
    // A subnormal scale counts as 0.
    DEV static u32 power(const typename W::Scale &s) { return (float_bits(s.s) >> 16 & 0xff80) * 0x00010001; }
    DEV void mantissas(float (&to)[2], int k) const
    {
        factors(to, k);
#pragma unroll
        for (int i = 0; i < 2; i++) to[i] = bits_float((float_bits(to[i]) & 0x007fffff) | 0x3f800000);
    }

    // Pair of product q; `less` is what is taken off, twice.
    DEV static u32 unshifted_pair(u32 word, int q, u32 less)
    {
        constexpr u32 lower = is_bf16 ? 0x7f007f00 : 0x64006400, upper = is_bf16 ? 0x7d007d00 : 0x54005400;
        const u32 code = word >> 8 * (q % 2) & (pair_half() ? 0x00f000f0 : 0x000f000f);
        return ptx::multiply_add_pairs<Element>(code, pair_half() ? upper : lower, less);
    }
    DEV static u32 less(const typename W::Scale &s)
    {
        const float z = (float)s.z / -unit;
        return pack2<Element>(z, z);
    }

    // ---- Of two parts ----

    // What a code of a lane's two rows is multiplied by, and what is added to it then, of each group of a
    // batch: codes count from 128. Of two levels the four lanes that have two rows make them of a group each.
    struct Splitting {
        float by[groups][2], more[groups][2];
    };
    DEV Splitting splitting(int k) const
    {
        Splitting to;
        if constexpr (W::two_levels) {
            static_assert(W::group == 32);
            const auto place = W::LevelPlace::of(lane_row(), k % W::step / 128, threadIdx.x % 4);
            const auto words = place.words(record(k));
            const Level<W> level = Level<W>::of(place, words);
            const Pair d = unpack2<f16>(words.d), m = unpack2<f16>(words.m);
            const float by[2] = {W::LevelPlace::unit * d.a * level.scale[0].a,
                                 W::LevelPlace::unit * d.b * level.scale[0].b};
            const float more[2] = {fmaf(-128, by[0], m.a * level.minimum.a),
                                   fmaf(-128, by[1], m.b * level.minimum.b)};
#pragma unroll
            for (int i = 0; i < 2 * groups; i++) {
                const int from = threadIdx.x % 32 / 4 * 4 + k % 128 / 32 + i / 2;
                to.by[i / 2][i % 2] = __shfl_sync(~0u, by[i % 2], from);
                to.more[i / 2][i % 2] = __shfl_sync(~0u, more[i % 2], from);
            }
        } else
#pragma unroll
            for (int i = 0; i < 2 * groups; i++) {
                const typename W::Scale s = scale(k + i / 2 * W::group, i % 2);
                to.by[i / 2][i % 2] = s.s, to.more[i / 2][i % 2] = fmaf(-128, s.s, s.m);
            }
        return to;
    }
    DEV void decode_parts(Fragments &to, int k) const
    {
        const Splitting s = splitting(k);
#pragma unroll
        for (int half = 0; half < 2; half++) {
            u32 word[2][words], high[2] = {};
#pragma unroll
            for (int last = 0; last < 2; last++) {
                load<true>(word[last], k, half, last);
                if constexpr ((W::bits & 3) != 0) high[last] = upper(k, half, last);
            }
#pragma unroll
            for (int i = 0; i < 2 * products; i++) {
                const int q = i / 2, last = i % 2, g = q / each;
                const Pair code = unpack2<Element>(counted_pair(word[last][q / 2], k, q, high[last]));
                const u32 a = float_bits(fmaf(code.a, s.by[g][half], s.more[g][half])),
                          b = float_bits(fmaf(code.b, s.by[g][half], s.more[g][half]));
                to[0][q][half + 2 * last] = ptx::pick_bytes<0x7632>(a, b);
                to[parts - 1][q][half + 2 * last] = pack2<bf16>(rest(a), rest(b));
            }
        }
    }

    // The batch that begins at k of the slot; times the scales' powers of two, if these are asked for.
    template <bool powers> DEV void decode_codes(Fragments &to, int k) const
    {
        constexpr bool masks = unshifted && !powers;
#pragma unroll
        for (int half = 0; half < 2; half++) {
            u32 word[2][words], high[2] = {};
#pragma unroll
            for (int last = 0; last < 2; last++) {
                load<!masks>(word[last], k, half, last);
                if constexpr ((W::bits & 3) != 0) high[last] = upper(k, half, last);
            }
#pragma unroll
            for (int g = 0; g < groups; g++) {
                const typename W::Scale s = scale(k + g * W::group, half);
                const u32 by = powers ? power(s) : 0;
                const u32 off = masks    ? less(s)
                                : powers ? ptx::multiply_pairs<Element>(below(s), by ^ 0x80008000)
                                         : below(s);
#pragma unroll
                for (int i = 0; i < 2 * each; i++) {
                    const int q = g * each + i / 2, last = i % 2;
                    u32 x;
                    if constexpr (masks) x = unshifted_pair(word[last][q / 2], q, off);
                    else if constexpr (W::bits == 8) x = byte_pair<powers>(word[last][q], off, by);
                    else if constexpr (codes_of == Codes::e2m1)
                        x = e2m1_pair<powers>(word[last][q / 2], q, by);
                    else x = integer_pair<powers>(word[last][q / 2], k, q, high[last], off, by);
                    finish(to, q, half + 2 * last, x, s);
                }
            }
        }
    }
    template <bool powers = false> DEV void decode(Fragments &to, int k) const
    {
        if constexpr (splits) decode_parts(to, k);
        else decode_codes<powers>(to, k);
    }
    // ---- Of int4, with a scale for each slot: a lane's words of the whole slot ----

    static constexpr bool by_slots =
        promotes && codes_of == Codes::int4 && W::tile == bk && W::step == bk && W::group == bk;
    using Words = Piece<by_slots ? 4 : 1>[2][2]; // of a half's row, for the first and the last 8 of each 16 k
    DEV void load(Words &to) const
    {
#pragma unroll
        for (int i = 0; i < 4; i++) {
            const int lane = lane_row() * 4 + pair_lane() + 2 * (i % 2);
            to[i / 2][i % 2] = *(const Piece<4> *)(first + i / 2 * 512 + lane * 16);
        }
    }
    // The batch that begins at k.
    DEV void decode(Fragments &to, const Words &from, int k) const
    {
        static_assert(!unshifted);
#pragma unroll
        for (int i = 0; i < products * 4; i++) {
            const int q = i / 4, half = i % 2, last = i / 2 % 2;
            const u32 word = from[half][last].at[k / 32 + q / 2];
            to[0][q][i % 4] = integer_pair(word >> 4 * pair_half(), k, q, 0, below(scale(0, half)));
        }
    }

    // ... times the scales' powers of two.
    DEV void decode_powers(Fragments &to, const Words &from, int k) const
    {
        u32 by[2], off[2];
#pragma unroll
        for (int half = 0; half < 2; half++) {
            const typename W::Scale s = scale(0, half);
            by[half] = power(s), off[half] = ptx::multiply_pairs<Element>(below(s), by[half] ^ 0x80008000);
        }
#pragma unroll
        for (int i = 0; i < products * 4; i++) {
            const int q = i / 4, half = i % 2, last = i / 2 % 2;
            const u32 word = from[half][last].at[k / 32 + q / 2] >> 4 * pair_half();
            to[0][q][i % 4] = integer_pair<true>(word, k, q, 0, off[half], by[half]);
        }
    }

    DEV static void finish(Fragments &to, int q, int i, u32 x, const typename W::Scale &s)
    {
        if constexpr (folds) to[0][q][i] = ptx::multiply_pairs<Element>(x, pack2<Element>(s.s, s.s));
        else to[0][q][i] = x;
    }
    // What its upper 16 bits, a number of bf16, leave of a number.
    DEV static float rest(u32 x) { return bits_float(x) - bits_float(x & 0xffff0000); }
    // ---- Product by product ----

    // What a lane loads of each row at one time: 16 bytes, since of shorter pieces those of every second row
    // would be in the same banks; fewer, where sums leave few registers.
    static constexpr bool crowded = rows > 64 || W::bits == 8;
    static constexpr int piece = crowded ? 2 : 4, ahead = W::tile / 4 * piece; // words; k of them
    static constexpr int more = W::bits & 3;                                   // upper bits, ...
    static constexpr bool late =
        crowded && more > 0 && W::group > 16; // ... which are loaded when they are decoded
    struct Raw {
        Piece<piece> word[2][2]; // of a half's row, for the first and the last 8 of each 16 k
        u32 high[2][2][more && !late ? more : 1];
    };
    // Word n of the upper bits of the tile that k is in.
    DEV u32 upper_word(int k, int half, int last, int n) const
    {
        const int lane = lane_row() * 4 + pair_lane() + 2 * last;
        const u8 *at = record(k) + W::high + ((k % W::step / W::tile * 32 + lane) * 2 + half) * 4 * more;
        return ((const u32 *)at)[n] >> more * pair_half();
    }
    using Fragment = u32[4]; // of a product

    DEV void load(Raw &to, int k) const
    {
#pragma unroll
        for (int i = 0; i < 4; i++) {
            const int half = i / 2, last = i % 2, lane = lane_row() * 4 + pair_lane() + 2 * last;
            const int tile = k % W::step / W::tile, part = k % W::tile / ahead * 4 * piece;
            to.word[half][last] =
                *(const Piece<piece> *)(record(k) + tile * 1024 + half * 512 + lane * 16 + part);
#pragma unroll
            for (int n = 0; n < more && !late; n++) to.high[half][last][n] = upper_word(k, half, last, n);
        }
    }
    // Product q of those that were loaded from k on.
    DEV void decode(Fragment &to, const Raw &from, int k, int q) const
    {
        const int pair = k % W::tile / 8 + 2 * q; // of four a word
#pragma unroll
        for (int i = 0; i < 4; i++) {
            const int half = i % 2, last = i / 2;
            const u32 off = below(scale(k + q * 16, half)), *word = from.word[half][last].at;
            if constexpr (W::bits == 8) to[i] = byte_pair(word[q] >> 16 * pair_half(), off);
            else if constexpr (codes_of == Codes::e2m1)
                to[i] = e2m1_pair(pair_half() ? word[q / 2] << 4 | word[q / 2] >> 28 : word[q / 2], q);
            else
                to[i] = integer_pair(word[q / 2] >> 4 * pair_half(), k, q,
                                     late ? upper_word(k, half, last, more * pair / 16)
                                          : from.high[half][last][late ? 0 : more * pair / 16],
                                     off);
        }
    }
    // The factors of the group that k is in.
    DEV void factors(float (&to)[2], int k) const
    {
        to[0] = scale(k, 0).s * unit, to[1] = scale(k, 1).s * unit;
    }
};

// Elements of 8 bits in rows of 128 bytes, swizzled, 64 of a warpgroup.
template <class T, class Element> struct ByteOperand {
    static constexpr bool folds = false, splits = false, promotes = false, by_products = false;
    static constexpr bool by_slots = false;
    struct Words {};
    static constexpr int bk = swizzle_row, batch = 64, promotion = 0, products = batch / 16, parts = 1;
    static constexpr int tile_bytes = 16 * swizzle_row, align = swizzle_atom;
    static_assert(sizeof(T) == 1);

    using Fragments = u32[parts][products][4];

    const u8 *first;

    template <bool = false> DEV void decode(Fragments &to, int k) const
    {
#pragma unroll
        for (int i = 0; i < 4 * products; i++) {
            const int q = i / 4, half = i % 2, last = i / 2 % 2, row = lane_row();
            const u8 *at = first + (8 * half + row) * swizzle_row + ((k / 16 + q ^ row) << 4);
            u32 two[2];
            Widen<T, Element>::pairs(*(const u32 *)(at + 4 * (pair_lane() + 2 * last)) >> 16 * pair_half(),
                                     two);
            to[0][q][i % 4] = two[0];
        }
    }
    DEV void factors(float (&)[2], int) const {}
    DEV void mantissas(float (&)[2], int) const {}
};

template <class Config, class Weights> struct MixedOperandOf {
    using Type = PackedOperand<Weights, typename Config::A, Config::a_rows>;
};
template <class Config> struct MixedOperandOf<Config, void> {
    using Type = ByteOperand<typename Config::B, typename Config::A>;
};

} // namespace coda
