// promotion.cuh -- sums of one slot of K, which are added to a tile's in fp32 when they are complete.
//
//     in turn     a consumer multiplies a slot, waits, and adds up; another consumer multiplies meanwhile
//     ahead       it issues the first half of the next slot before it adds up the last one's, so that its
//                 tensor cores have work: sums of two slots, for which registers must leave room
//
// Both add the same numbers in the same order. Scales of blocks (scales.cuh), which come while the slot is
// multiplied, make the addition a multiply-add.
#pragma once

#include "ptx/wgmma.cuh"
#include "tile/resources.cuh"
#include "tile/scales.cuh"

namespace coda {

// Where two blocks share an SM, or one has no registers for sums of two slots, others multiply meanwhile.
template <class Config, int blocks>
constexpr bool promotes_ahead = Config::groups > 1 && Config::splits == 1 && blocks *Config::bn <= 128;

template <class Gemm, class Config, class Products> struct Promotion {
    using Accumulators = typename Gemm::Accumulators;
    using Cursor = typename Gemm::Cursor;
    using Scales = ThreadScales<Config, Gemm::blocks>;
    static constexpr int blocks = Gemm::blocks, bn = Config::bn, half_slot = swizzle_row / 2; // bytes
    static constexpr bool ahead = promotes_ahead<Config, blocks>;

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
#pragma unroll 1
        for (int k = span.first; k < span.last; k++, at.next()) {
            Accumulators part;
            const auto factors = scales.load(k);
            await(at);
            gemm.template multiply<bn>(part, at.slot, first_row, false);
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
    DEV void step(Accumulators &acc, Accumulators (&part)[2], int k, Cursor &at) const
    {
        const int slot = at.slot;
        const auto factors = scales.load(k);
        issue<1>(part[phase], slot);
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
        Accumulators part[2];
        await(at);
        issue<0>(part[0], at.slot);
#pragma unroll 1
        for (int k = 0; k < even; k += 2) {
            step<0, false>(acc, part, k, at);
            step<1, false>(acc, part, k + 1, at);
        }
        if constexpr (end > even) step<0, false>(acc, part, even, at);
        const int last = at.slot;
        step<end % 2, true>(acc, part, end, at);
        return last;
    }

    // Returns the slot that is still to be released.
    DEV int multiply(Accumulators &acc, Cursor &at) const
    {
        Gemm::clear(acc);
        if constexpr (ahead) return multiply_ahead(acc, at);
        else return multiply_in_turn(acc, at);
    }
};

} // namespace coda
