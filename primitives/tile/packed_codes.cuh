// packed_codes.cuh -- codes of weights in records (weights.cuh, lib/pack/pack.h) become operands of mma.sync:
// a lane finds the pairs of its rows by masks. Codes of n bits count from 2^n, `above`, as they are the upper
// bits of a mantissa. Those of 4 bits are subnormal numbers as they lie, so that they need fewer shifts, and
// one multiply-add makes them what they are, times 1 / unit; of one level of scales, groups of less than
// 128 k leave no registers for that.
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

template <class Weights, class Element> struct PackedCodes;
template <Codes codes_of, Scales scales, Zeros zeros, int along, i64 columns, class Element>
struct PackedCodes<Packed<codes_of, scales, zeros, along, columns>, Element> {
    using W = Packed<codes_of, scales, zeros, along, columns>;
    using Work = typename MultipliedAs<Element, W::bits == 8>::Type;
    static constexpr bool is_bf16 = is_bf16_of<Work>,
                          unshifted = codes_of == Codes::int4 &&
                                      (W::two_levels || (zeros == Zeros::none && W::group >= 128)),
                          few_bits = W::bits < 8 && codes_of != Codes::e2m1 && !unshifted;
    static constexpr float unit = !unshifted ? 1 : is_bf16 ? 0x1p6f : 0x1p14f;
    static constexpr int above = few_bits ? 1 << W::bits : 0, upper_words = W::bits & 3;

    // Where a lane finds what it has of a run that begins at k of a slot: bytes from a row's first record.
    struct Lane {
        u32 codes, upper;
        DEV static Lane of(int k)
        {
            const int lane = threadIdx.x % 32, record = k / W::step * W::bytes, tile = k % W::step / W::tile;
            return {ptx::kept(record + tile * 1024 + lane * 16),
                    ptx::kept(record + W::high + (tile * 32 + lane) * 8 * upper_words)};
        }
    };
    // A lane's row of weights: where its first record in the slot is, and in which half of that it lies.
    struct Row {
        const u8 *first;
        int half;
        DEV typename W::Scale scale(int k) const
        {
            return W::scale(first + k / W::step * W::bytes, 8 * half + (int)threadIdx.x % 32 / 4,
                            k % W::step);
        }
        // This lane's 16 bytes of tile i of a run.
        DEV Words codes(const Lane &lane, int i = 0) const
        {
            const int later = i * W::tile / W::step * W::bytes + i * W::tile % W::step / W::tile * 1024;
            return *(const Words *)(first + lane.codes + later + half * 512);
        }
        // Its upper bits: one word or two.
        DEV void upper(const Lane &lane, u32 (&to)[2]) const
        {
            const u8 *at = first + lane.upper + half * 4 * upper_words;
            if constexpr (upper_words == 1) to[0] = *(const u32 *)at;
            else {
                const TwoWords w = *(const TwoWords *)at;
                to[0] = w.at[0], to[1] = w.at[1];
            }
        }
    };

    // Bits from `from` on, moved to where others from `to` on were.
    DEV static u32 moved(u32 x, int from, int to) { return from > to ? x >> (from - to) : x << (to - from); }
    // Pair p of word j, of 4 to 6 bits, as the upper bits of the mantissa of 2^bits: which is added to it.
    DEV static u32 integer_pair(u32 word, int j, int p, const u32 (&upper)[2])
    {
        constexpr int n = upper_words, mantissa = is_bf16 ? 7 : 10, lowest = mantissa - W::bits;
        constexpr u32 both = 0x00010001, from = ((is_bf16 ? 127 : 15) + W::bits << mantissa) * both;
        const u32 x = ptx::bits_and_more<(15 << lowest) * both, from>(moved(word, 4 * p, lowest));
        if constexpr (n == 0) return x;
        const int at = n * (4 * j + p);
        return x | (moved(upper[at / 16], at % 16, lowest + 4) & ((1 << n) - 1 << lowest + 4) * both);
    }
    // Pair p of a word of 4 bits, less what they count from.
    DEV static u32 unshifted_pair(u32 word, int p)
    {
        constexpr u32 lower = is_bf16 ? 0x7f007f00 : 0x64006400, upper = is_bf16 ? 0x7d007d00 : 0x54005400,
                      less = is_bf16 ? 0xbe00be00 : 0x90009000;
        const u32 w = word >> p / 2 * 8, code = p % 2 ? w & 0x00f000f0 : w & 0x000f000f;
        if constexpr (W::middle == 0) return ptx::multiply_pairs<Work>(code, p % 2 ? upper : lower);
        return ptx::multiply_add_pairs<Work>(code, p % 2 ? upper : lower, less);
    }
    // The codes of a run: a lane's 16 bytes of each tile of a record.
    template <int run> struct Run {
        static_assert(run == W::tile || !upper_words);
        Words word[run / W::tile];
        u32 high[2];
        DEV void load(const Row &row, const Lane &lane)
        {
#pragma unroll
            for (int i = 0; i < run / W::tile; i++) word[i] = row.codes(lane, i);
            if constexpr (upper_words != 0) row.upper(lane, high);
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
                    if constexpr (unshifted) to[e] = unshifted_pair(w, p + e);
                    else
                        to[e] = codes_of == Codes::e2m1 ? e2m1_value<Work>(e2m1_halves(w, p + e))
                                                        : integer_pair(w, j, p + e, high);
        }
    };

    // A whole number of 7 bits, twice.
    DEV static constexpr u32 whole(int n)
    {
        const int size = n < 0 ? -n : n, mantissa = is_bf16 ? 7 : 10;
        int e = 0;
        while (size >> e > 1) e++;
        const int half =
            ((is_bf16 ? 127 : 15) + e << mantissa) + ((size << mantissa >> e) & ((1 << mantissa) - 1));
        return (n == 0 ? 0 : half | (n < 0 ? 0x8000 : 0)) * 0x00010001u;
    }
};

} // namespace coda
