// mixed_in_place.cuh -- products of gemm_sm90_mixed.cuh whose sums are multiplied where they are: of up to
// 256 rows of A, for which weights are decoded once.
//
// A scale of a slot of K is 2^e f, with f in [1, 2). Codes are multiplied by 2^e when they are decoded, which
// is exact in bf16; sums count in units of f. Ahead of the next slot's products they are multiplied by the
// quotient of both f, so that no partial sums take registers.
//
// Both consumers of a block take turns of 128 k: one multiplies, and the other decodes and scales. Weights
// that are two of 16 bits, which take the longest, are decoded beside a consumer's own products instead.
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
    // The slots of K of all pieces, one by one.
    struct Steps {
        typename Gemm::Deal pieces;
        int step, last;
        Tile tile;
        DEV bool more(const Gemm &gemm)
        {
            if (step < last) return true;
            if (!pieces.more()) return false;
            const auto p = pieces.next();
            step = p.first, last = p.last, tile = gemm.walk().tile(p.tile);
            return true;
        }
    };
    // A slot of B is awaited when the ring of A has one that was multiplied as early. Of the first round two
    // are loaded beside each slot of A; the first ones do not wait for the kernel ahead, if that does not
    // write them.
    template <bool early> DEV void produce() const
    {
        constexpr int ahead = Gemm::b_slots - Gemm::a_slots / Gemm::boxes,
                      early_slots = Gemm::b_slots < Gemm::most_early ? Gemm::b_slots : Gemm::most_early;
        Steps of_b = {gemm.pieces(), 0, 0, {}}, of_a = of_b;
        int done = 0;
        if (early) ptx::grid_wait_not();
        else ptx::grid_wait();
        for (; done < early_slots && of_b.more(gemm); done++) load_records(done, of_b.step++, of_b.tile);
        if (early) ptx::grid_wait();
        Boxes box = Boxes::producer();
        Records record = Records::consumer(); // a round is over
#pragma unroll 1
        for (int i = ahead; of_a.more(gemm); i++, of_a.step++) {
#pragma unroll 1
            for (int j = 0; j < Gemm::boxes; j++) load_box(box, of_a.step * Gemm::bk + 64 * j, of_a.tile);
            for (int j = 0; j < 2 && done < Gemm::b_slots && of_b.more(gemm); j++, done++)
                load_records(done, of_b.step++, of_b.tile);
            if (i < Gemm::b_slots || !of_b.more(gemm)) continue;
            ptx::mbarrier_wait(Gemm::address(&gemm.s.empty_b[record.slot]), record.parity);
            load_records(record.slot, of_b.step++, of_b.tile);
            record.next();
        }
    }

    // ---- Consumers ----

    // Where one is: the slots of A and of B that are next.
    struct Place {
        Boxes &box;
        Records &record;
        float unit[2];  // of the sums of a thread's two rows
        float ratio[2]; // what brings them to the next slot's
    };
    static constexpr int together = 2; // batches of a turn
    static constexpr bool in_turns = !Operand::splits;

    DEV static void await_turn(int of) { ptx::named_barrier(barrier_scaled + of, 256); }
    DEV static void pass_turn(int to) { ptx::named_arrive(barrier_scaled + to, 256); }
    // The first turn is consumer 0's; both have as many, and behind the last one it waits once more.
    DEV void begin() const
    {
        if (in_turns && group == 1) pass_turn(0);
    }
    DEV void end() const
    {
        if (in_turns && group == 0) await_turn(0);
    }

    DEV static void arrive(u64 &barrier)
    {
        __syncwarp();
        if (threadIdx.x % 32 == 0) ptx::mbarrier_arrive(Gemm::address(&barrier));
    }
    DEV static void scale(Sums &sum, const float (&by)[2])
    {
#pragma unroll
        for (int i = 0; i < Gemm::n / 2; i++) ptx::wgmma_scale(sum[i], by[i / 2 % 2]);
    }
    // Words of a slot that is one turn are loaded while the turn ahead of it is multiplied.
    static constexpr bool preloads = Operand::by_slots && batches == together;
    using Words = typename Operand::Words;
    DEV void await_records(const Place &at) const
    {
        ptx::mbarrier_wait(Gemm::address(&gemm.s.full_b[at.record.slot]), at.record.parity);
    }
    DEV void load_ahead(Words &words, const Place &at) const
    {
        if constexpr (preloads) {
            await_records(at);
            gemm.operand(at.record.slot, group).load(words);
        }
    }
    // Batch i of the slot of B that is next.
    DEV void decode(Fragments &to, const Words &words, Place &at, int i) const
    {
        const Operand own = gemm.operand(at.record.slot, group);
        if constexpr (preloads) own.decode_powers(to, words, i * 64);
        else {
            if (i == 0) await_records(at);
            own.template decode<scales>(to, i * 64);
        }
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
    DEV void decode_turn(Fragments (&f)[together], const Words &words, Place &at, int i) const
    {
#pragma unroll
        for (int j = 0; j < together; j++) decode(f[j], words, at, i + j);
    }
    template <bool last>
    DEV void multiply_turn(Sums &sum, Fragments (&f)[together], Words &words, Place &at) const
    {
        int busy[together];
        await_turn(group);
#pragma unroll
        for (int j = 0; j < together; j++) {
            ptx::mbarrier_wait(Gemm::address(&gemm.s.full[at.box.slot]), at.box.parity);
            gemm.issue(sum, f[j], at.box.slot, 0, true);
            busy[j] = at.box.slot;
            at.box.next();
        }
        pass_turn(1 - group);
        if constexpr (!last) load_ahead(words, at);
        ptx::wgmma_wait<0>();
#pragma unroll
        for (int j = 0; j < together; j++) arrive(gemm.s.empty[busy[j]]);
    }
    // A slot whose first turn is decoded. The condition always holds: without one ptxas moves the
    // multiplications behind await_turn().
    template <bool last>
    DEV void multiply_slot(Sums &sum, Fragments (&f)[together], Words &words, Place &at) const
    {
#pragma unroll
        for (int i = 0; i < batches; i += together) {
            if (scales && i == 0 && at.box.slot >= 0) scale(sum, at.ratio);
            if (i + together < batches) multiply_turn<false>(sum, f, words, at);
            else multiply_turn<last>(sum, f, words, at);
            if (i + together < batches || !last) decode_turn(f, words, at, (i + together) % batches);
        }
    }
    // ... and one whose first batch is. The slot of A that is multiplied is busy; none: -1.
    template <bool last>
    DEV void multiply_beside(Sums &sum, Fragments (&f)[together], Place &at, int &busy) const
    {
        static_assert(!scales || in_turns);
#pragma unroll
        for (int i = 0; i < batches; i++) {
            ptx::mbarrier_wait(Gemm::address(&gemm.s.full[at.box.slot]), at.box.parity);
            gemm.issue(sum, f[i % 2], at.box.slot, 0, true);
            ptx::wgmma_wait<1>();
            if (busy >= 0) arrive(gemm.s.empty[busy]);
            busy = at.box.slot;
            at.box.next();
            if (i + 1 < batches || !last) decode(f[1 - i % 2], {}, at, (i + 1) % batches);
        }
    }
    DEV void multiply_all_beside(Sums &sum, Fragments (&f)[together], Place &at, int slots) const
    {
        int busy = -1;
        decode(f[0], {}, at, 0);
#pragma unroll 1
        for (int i = 1; i < slots; i++) multiply_beside<false>(sum, f, at, busy);
        multiply_beside<true>(sum, f, at, busy);
        ptx::wgmma_wait<0>();
        arrive(gemm.s.empty[busy]);
    }
    DEV void multiply(Sums &sum, Boxes &box, Records &record, int slots) const
    {
        static_assert(batches % together == 0 && Operand::batch == 64 && Gemm::groups == 2);
        static_assert(!scales || Operand::promotion == Gemm::bk);
        Place at = {box, record, {1, 1}, {1, 1}};
        Fragments f[together];
#pragma unroll
        for (int i = 0; i < Gemm::n / 2; i++) sum[i] = 0;
        if constexpr (!in_turns) return multiply_all_beside(sum, f, at, slots);
        Words words;
        load_ahead(words, at);
        decode_turn(f, words, at, 0);
#pragma unroll 1
        for (int i = 1; i < slots; i++) multiply_slot<false>(sum, f, words, at);
        multiply_slot<true>(sum, f, words, at);
        if constexpr (scales) scale(sum, at.unit);
    }
};

} // namespace coda
