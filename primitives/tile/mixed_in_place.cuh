// mixed_in_place.cuh -- products of gemm_sm90_mixed.cuh whose sums are multiplied where they are: of up to
// 256 rows of A, for which weights are decoded once.
//
// A scale of a slot of K is 2^e f, with f in [1, 2). Codes are multiplied by 2^e when they are decoded, which
// is exact in bf16; sums count in units of f. Ahead of the next slot's products they are multiplied by the
// quotient of both f, so that no partial sums take registers. Other consumers' products run meanwhile.
//
// A has a ring of slots of its own, of 64 k, a batch: those of B are longer and have few bytes.
#pragma once

#include "math.cuh"
#include "ptx/barrier.cuh"
#include "ptx/control.cuh"
#include "ptx/wgmma.cuh"
#include "tile/raster.cuh"
#include "tile/resources.cuh"
#include "tile/ring.cuh"

namespace coda {

template <class Gemm> struct MixedInPlace {
    using Operand = typename Gemm::Operand;
    using Sums = typename Gemm::Sums;
    using Fragments = typename Gemm::Fragments;
    using Boxes = typename Gemm::Cursor;
    using Records = RingCursor<Gemm::b_slots>;
    static constexpr int batches = Gemm::batches;
    static constexpr bool scales = Operand::promotes;

    const Gemm &gemm;
    const int group; // the consumer; none: the producer

    // ---- Producer, a warp ----

    DEV void load_records(int slot, int step, const Tile &t) const
    {
        if (threadIdx.x % 32 == 0)
            ptx::mbarrier_arrive_expect(Gemm::address(&gemm.s.full_b[slot]), Gemm::groups * Gemm::b_bytes);
        __syncwarp();
        gemm.load_b(slot, step, t);
    }
    DEV void load_box(Boxes &at, int k, const Tile &t) const
    {
        const u32 full = Gemm::address(&gemm.s.full[at.slot]);
        const typename Gemm::Boxes operands = {gemm.args, 0};
        ptx::mbarrier_wait(Gemm::address(&gemm.s.empty[at.slot]), at.parity);
        if (threadIdx.x % 32 == 0) ptx::mbarrier_arrive_expect(full, operands.a_rows() * swizzle_row);
        __syncwarp(); // all have seen that it is empty, which it may be again soon
        if (threadIdx.x % 32 == 0) operands.load_a(Gemm::address(gemm.s.a[at.slot][0]), full, k, t);
        at.next();
    }
    // The first slots of B do not wait for the kernel ahead, if that does not write it.
    template <bool early> DEV void produce() const
    {
        auto pieces = gemm.pieces();
        int done = 0;
        if (early && pieces.more()) {
            auto first = pieces;
            const auto p = first.next();
            ptx::grid_wait_not();
            for (; done < Gemm::b_slots && p.first + done < p.last; done++)
                load_records(done, p.first + done, gemm.walk().tile(p.tile));
        }
        ptx::grid_wait();
        Boxes box = Boxes::producer();
        Records record = Records::producer();
        for (; pieces.more(); done = 0) {
            const auto p = pieces.next();
            const Tile t = gemm.walk().tile(p.tile);
#pragma unroll 1
            for (int step = p.first; step < p.last; step++, record.next()) {
                if (step - p.first >= done) {
                    ptx::mbarrier_wait(Gemm::address(&gemm.s.empty_b[record.slot]), record.parity);
                    load_records(record.slot, step, t);
                }
#pragma unroll 1
                for (int i = 0; i < Gemm::boxes; i++) load_box(box, step * Gemm::bk + 64 * i, t);
            }
        }
    }

    // ---- Consumers ----

    // Where one is: the slots of A and of B that are next, and that of A which is multiplied.
    struct Place {
        Boxes &box;
        Records &record;
        int busy;       // -1: none
        float unit[2];  // of the sums of a thread's two rows
        float ratio[2]; // what brings them to the next slot's
    };

    DEV static void arrive(u64 &barrier)
    {
        __syncwarp();
        if (threadIdx.x % 32 == 0) ptx::mbarrier_arrive(Gemm::address(&barrier));
    }
    DEV void release_box(const Place &at) const
    {
        if (at.busy >= 0) arrive(gemm.s.empty[at.busy]);
    }
    DEV static void scale(Sums &sum, const float (&by)[2])
    {
#pragma unroll
        for (int i = 0; i < Gemm::n / 2; i++) ptx::wgmma_scale(sum[i], by[i / 2 % 2]);
    }
    // Batch i of the slot of B that is next.
    DEV void decode(Fragments &to, Place &at, int i) const
    {
        const Operand own = gemm.operand(at.record.slot, group);
        if (i == 0) ptx::mbarrier_wait(Gemm::address(&gemm.s.full_b[at.record.slot]), at.record.parity);
        own.template decode<scales>(to, i * 64);
        if (scales && i == 0) {
            float next[2];
            own.mantissas(next, 0);
#pragma unroll
            for (int h = 0; h < 2; h++) at.ratio[h] = at.unit[h] * math::rcp(next[h]), at.unit[h] = next[h];
        }
        Gemm::pin(to);
        if (i + 1 < batches) return;
        arrive(gemm.s.empty_b[at.record.slot]);
        at.record.next();
    }
    // A slot whose first batch is decoded. Products of a batch run while the next one is.
    template <bool last> DEV void multiply_slot(Sums &sum, Fragments (&f)[2], Place &at) const
    {
#pragma unroll
        for (int i = 0; i < batches; i++) {
            const bool begins = scales && i == 0;
            if (begins) {
                ptx::wgmma_wait<0>();
                scale(sum, at.ratio);
            }
            ptx::mbarrier_wait(Gemm::address(&gemm.s.full[at.box.slot]), at.box.parity);
            gemm.issue(sum, f[i % 2], at.box.slot, 0, true);
            if (!begins) ptx::wgmma_wait<1>();
            release_box(at);
            at.busy = at.box.slot;
            at.box.next();
            if (i + 1 < batches || !last) decode(f[1 - i % 2], at, (i + 1) % batches);
        }
    }
    DEV void multiply(Sums &sum, Boxes &box, Records &record, int slots) const
    {
        static_assert(batches % 2 == 0 && Operand::batch == 64);
        static_assert(!scales || Operand::promotion == Gemm::bk);
        Place at = {box, record, -1, {1, 1}, {1, 1}};
        Fragments f[2];
#pragma unroll
        for (int i = 0; i < Gemm::n / 2; i++) sum[i] = 0;
        decode(f[0], at, 0);
#pragma unroll 1
        for (int i = 1; i < slots; i++) multiply_slot<false>(sum, f, at);
        multiply_slot<true>(sum, f, at);
        ptx::wgmma_wait<0>();
        release_box(at);
        if constexpr (scales) scale(sum, at.unit);
    }
};

} // namespace coda
