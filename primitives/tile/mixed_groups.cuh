// mixed_groups.cuh -- products of gemm_sm90_mixed.cuh whose weights have several scales in a slot of K:
// groups of 16, 32 or 64 k, whose sums are promoted when they are complete.
//
// Each product of 16 k is a group of wgmma of its own; while it runs the next one is decoded. A group of
// products is promoted while the next group's first product runs, so that there are partial sums of two; of
// 16 k, and where registers are few, before it is issued.
#pragma once

#include "ptx/wgmma.cuh"
#include "tile/resources.cuh"

namespace coda {

template <class Gemm> struct MixedGroups {
    using Operand = typename Gemm::Operand;
    using Cursor = typename Gemm::Cursor;
    using Sums = typename Gemm::Sums;
    using Raw = typename Operand::Raw;

    static constexpr int all = Gemm::bk / 16;               // products of a slot
    static constexpr int members = Operand::promotion / 16; // ... of a group
    static constexpr bool singly = members == 1;
    static constexpr int loaded = Operand::ahead / 16; // ... that are loaded at one time
    static_assert(all % (2 * members) == 0 && all % loaded == 0 && loaded > 1);
    using Partial = Sums[singly ? 1 : 2];
    using Ring = typename Operand::Fragment[2];

    const Gemm &gemm;
    const int group; // the consumer

    DEV void issue(Sums &part, Ring &f, int slot, int p) const
    {
        Gemm::pin(f[p % 2]);
        ptx::wgmma_fence();
        ptx::Wgmma<typename Gemm::Element, Gemm::n>::template mma<0>(part, f[p % 2], gemm.rows_of_a(slot, p),
                                                                     p % members > 0);
        ptx::wgmma_commit();
    }
    // The product behind product p of a slot is decoded, and what follows it loaded.
    template <bool last> DEV void decode_next(Ring &f, Raw &raw, int slot, Cursor next, int p) const
    {
        const int q = (p + 1) % all, behind = (p + 2) % all;
        if (last && p + 1 == all) return;
        const Operand own = gemm.operand(q ? slot : next.slot, group);
        own.decode(f[q % 2], raw, q / loaded * Operand::ahead, q % loaded);
        Gemm::pin(f[q % 2]);
        if (behind % loaded) return;
        if (behind) own.load(raw, behind * 16);
        else if (!last) {
            gemm.await(next);
            gemm.operand(next.slot, group).load(raw, 0);
        }
    }
    DEV void promote(Sums &sum, const Sums &part, int slot, int p) const
    {
        float factor[2];
        gemm.operand(slot, group).factors(factor, p * 16);
        Gemm::promote(sum, part, factor);
    }

    // A slot whose first product has been issued, and the second one decoded; then the next slot's first.
    template <bool last> DEV void multiply_slot(Sums &sum, Partial &part, Ring &f, Raw &raw, Cursor &at) const
    {
        const Cursor own = at;
        at.next();
#pragma unroll
        for (int p = 1; p < all; p++) {
            float factor[2];
            const bool begins = p % members == 0;
            if (begins) gemm.operand(own.slot, group).factors(factor, (p - 1) * 16);
            issue(part[p / members % 2], f, own.slot, p);
            ptx::wgmma_wait<1>();
            if (begins) Gemm::promote(sum, part[(p / members + 1) % 2], factor);
            decode_next<last>(f, raw, own.slot, at, p);
        }
        float factor[2];
        gemm.operand(own.slot, group).factors(factor, (all - 1) * 16);
        if constexpr (!last) issue(part[0], f, at.slot, 0);
        ptx::wgmma_wait<last ? 0 : 1>();
        gemm.release(own.slot);
        Gemm::promote(sum, part[1], factor);
        if constexpr (!last) decode_next<last>(f, raw, at.slot, at, 0);
    }
    template <bool last> DEV void multiply_singly(Sums &sum, Sums &part, Ring &f, Raw &raw, Cursor &at) const
    {
        const Cursor own = at;
        at.next();
#pragma unroll
        for (int p = 0; p < all; p++) {
            float factor[2];
            issue(part, f, own.slot, p);
            gemm.operand(own.slot, group).factors(factor, p * 16);
            decode_next<last>(f, raw, own.slot, at, p);
            ptx::wgmma_wait<0>();
            if (p == all - 1) gemm.release(own.slot);
            Gemm::promote(sum, part, factor);
        }
    }

    // So many slots, of which the first one is there.
    DEV void multiply(Sums &sum, Cursor &at, int slots) const
    {
        Partial part;
        Ring f;
        Raw raw;
        gemm.operand(at.slot, group).load(raw, 0);
        gemm.operand(at.slot, group).decode(f[0], raw, 0, 0);
        if constexpr (singly) {
#pragma unroll 1
            for (int i = 1; i < slots; i++) multiply_singly<false>(sum, part[0], f, raw, at);
            multiply_singly<true>(sum, part[0], f, raw, at);
        } else {
            issue(part[0], f, at.slot, 0);
            decode_next<false>(f, raw, at.slot, at, 0);
#pragma unroll 1
            for (int i = 1; i < slots; i++) multiply_slot<false>(sum, part, f, raw, at);
            multiply_slot<true>(sum, part, f, raw, at);
        }
    }
};

} // namespace coda
