// promotion.cuh -- sums of one slot of K, which are added to a tile's in fp32 when they are complete.
//
//     in turn     a consumer multiplies a slot, waits, and adds up; another consumer multiplies meanwhile
//     ahead       it issues the first half of the next slot before it adds up the last one's, so that its
//                 tensor cores have work: sums of two slots, for which registers must leave room
//     by pieces   where they do not: a piece of a slot, 64 rows by half of the columns, is added up while
//                 the next one is multiplied
//
// All add the same numbers in the same order. Scales of blocks (scales.cuh), which are loaded some slots
// ahead, make the addition a multiply-add.
#pragma once

#include "ptx/wgmma.cuh"
#include "tile/resources.cuh"
#include "tile/scales.cuh"

namespace coda {

// Where two blocks share an SM, or one has no registers for sums of two slots, others multiply meanwhile.
template <class Config, int blocks>
constexpr bool promotes_ahead = Config::groups > 1 && Config::splits == 1 && blocks *Config::bn <= 128;

template <class Config, int blocks>
constexpr bool promotes_by_pieces =
    Config::groups > 1 && Config::splits == 1 && !promotes_ahead<Config, blocks> && Config::bn % 32 == 0;

template <class Gemm, class Config, class Products> struct Promotion {
    using Accumulators = typename Gemm::Accumulators;
    using Cursor = typename Gemm::Cursor;
    using Scales = ThreadScales<Config, Gemm::blocks>;
    using ScaleWalk = typename Scales::Walk;
    static constexpr int blocks = Gemm::blocks, bn = Config::bn, half_slot = swizzle_row / 2; // bytes
    static constexpr bool ahead = promotes_ahead<Config, blocks>;
    static constexpr bool by_pieces = promotes_by_pieces<Config, blocks>;

    const Gemm &gemm;
    const Scales scales;
    const int first_row;

    DEV void await(const Cursor &at) const
    {
        ptx::mbarrier_wait(Gemm::address(&gemm.s.full[at.slot]), at.parity);
    }
    template <class Factors>
    DEV static void add(Accumulators &acc, const Accumulators &part, const Factors &factors)
    {
#pragma unroll
        for (int i = 0; i < blocks * bn / 2; i++) {
            const int m = i / (bn / 2), sum = i % (bn / 2);
            factors.add(acc[m][sum], part[m][sum], m, sum);
        }
    }

    // ---- In turn ----

    // The last slot is released by the caller, as it is by all others.
    DEV int multiply_in_turn(Accumulators &acc, Cursor &at) const
    {
        const auto span = Gemm::part();
        int last = at.slot;
        ScaleWalk walk = scales.walk(span.first, Gemm::steps);
#pragma unroll 1
        for (int k = span.first; k < span.last; k++, at.next()) {
            Accumulators part;
            await(at);
            gemm.template multiply<bn>(part, at.slot, first_row, false);
            const auto factors = walk.next();
            ptx::wgmma_wait<0>();
            if (k + 1 < span.last) gemm.release(at.slot);
            last = at.slot;
            add(acc, part, factors);
        }
        return last;
    }

    // ---- Ahead ----

    template <int half> DEV void issue(Accumulators &part, int slot) const
    {
        const u64 a = gemm.a_descriptor(slot, first_row) + half * half_slot / descriptor_unit;
        const u64 b = gemm.b_descriptor(slot) + half * half_slot / descriptor_unit;
        ptx::wgmma_fence();
#pragma unroll
        for (int m = 0; m < blocks; m++)
            Products::template issue_half<bn>(part[m], a + m * box_bytes / descriptor_unit, b, half);
        ptx::wgmma_commit();
    }
    // The first half of slot k is on its way. Its sums are added while the next one's is.
    template <int phase, bool last>
    DEV void step(Accumulators &acc, Accumulators (&part)[2], ScaleWalk &walk, Cursor &at) const
    {
        const int slot = at.slot;
        issue<1>(part[phase], slot);
        const auto factors = walk.next();
        at.next();
        ptx::wgmma_wait<1>();
        if constexpr (!last) {
            await(at);
            issue<0>(part[1 - phase], at.slot);
            ptx::wgmma_wait<1>();
            gemm.release(slot);
        } else ptx::wgmma_wait<0>();
        add(acc, part[phase], factors);
    }
    DEV int multiply_ahead(Accumulators &acc, Cursor &at) const
    {
        constexpr int end = Gemm::steps - 1, even = end / 2 * 2;
        ScaleWalk walk = scales.walk(0, Gemm::steps);
        Accumulators part[2];
        await(at);
        issue<0>(part[0], at.slot);
#pragma unroll 1
        for (int k = 0; k < even; k += 2) {
            step<0, false>(acc, part, walk, at);
            step<1, false>(acc, part, walk, at);
        }
        if constexpr (end > even) step<0, false>(acc, part, walk, at);
        const int last = at.slot;
        step<end % 2, true>(acc, part, walk, at);
        return last;
    }

    // ---- By pieces ----

    static constexpr int pieces = 2 * blocks, piece_columns = bn / 2;
    using Piece = float[piece_columns / 2];

    // Operands of piece p, from `half` of the slot on.
    template <int p, int half = 0> DEV u64 piece_a(int slot) const
    {
        return gemm.a_descriptor(slot, first_row) + (p / 2 * box_bytes + half * half_slot) / descriptor_unit;
    }
    template <int p, int half = 0> DEV u64 piece_b(int slot) const
    {
        constexpr int first = p % 2 * piece_columns * swizzle_row;
        return gemm.b_descriptor(slot) + (first + half * half_slot) / descriptor_unit;
    }
    template <int p> DEV void issue_piece(Piece &part, int slot) const
    {
        ptx::wgmma_fence();
        Products::template issue<piece_columns>(part, piece_a<p>(slot), piece_b<p>(slot), false);
        ptx::wgmma_commit();
    }
    // A half of the first piece. The first is on its way at the end of a turn of the loop, and waited for
    // alone: of a whole piece ptxas would not see that it is, and serialize all products (C7514).
    template <int half> DEV void issue_first(Piece &part, int slot) const
    {
        const u64 a = piece_a<0, half>(slot), b = piece_b<0, half>(slot);
        ptx::wgmma_fence();
        Products::template issue_half<piece_columns>(part, a, b, half);
        ptx::wgmma_commit();
        if constexpr (half == 1) ptx::wgmma_wait<1>();
    }
    template <int p, class Factors>
    DEV static void add_piece(Accumulators &acc, const Piece &part, const Factors &factors)
    {
        constexpr int m = p / 2, first = p % 2 * (piece_columns / 2);
#pragma unroll
        for (int i = 0; i < piece_columns / 2; i++) factors.add(acc[m][first + i], part[i], m, first + i);
    }
    // From piece p on, which is on its way: all but the last one are added up, which then is.
    template <int p = 0, class Factors>
    DEV void multiply_pieces(Accumulators &acc, Piece (&part)[2], int slot, const Factors &factors) const
    {
        if constexpr (p + 1 < pieces) {
            issue_piece<p + 1>(part[(p + 1) % 2], slot);
            ptx::wgmma_wait<1>();
            add_piece<p>(acc, part[p % 2], factors);
            multiply_pieces<p + 1>(acc, part, slot, factors);
        }
    }
    DEV int multiply_by_pieces(Accumulators &acc, Cursor &at) const
    {
        ScaleWalk walk = scales.walk(0, Gemm::steps);
        Piece part[2];
        await(at);
        issue_first<0>(part[0], at.slot);
#pragma unroll 1
        for (int k = 0; k + 1 < Gemm::steps; k++) {
            const int slot = at.slot;
            issue_first<1>(part[0], slot);
            const auto factors = walk.next();
            multiply_pieces(acc, part, slot, factors);
            at.next();
            await(at);
            issue_first<0>(part[0], at.slot);
            ptx::wgmma_wait<1>();
            gemm.release(slot);
            add_piece<pieces - 1>(acc, part[1], factors);
        }
        const int last = at.slot;
        issue_first<1>(part[0], last);
        const auto factors = walk.next();
        multiply_pieces(acc, part, last, factors);
        at.next();
        ptx::wgmma_wait<0>();
        add_piece<pieces - 1>(acc, part[1], factors);
        return last;
    }

    // Returns the slot that is still to be released.
    DEV int multiply(Accumulators &acc, Cursor &at) const
    {
        Gemm::clear(acc);
        if constexpr (ahead) return multiply_ahead(acc, at);
        else if constexpr (by_pieces) return multiply_by_pieces(acc, at);
        else return multiply_in_turn(acc, at);
    }
};

} // namespace coda
