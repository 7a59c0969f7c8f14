// mixed_batches.cuh -- products of gemm_sm90_mixed.cuh by batches: one is issued, and the next one decoded
// meanwhile. Weights without scales, or with one for a row of a slot at least, whose sums are made apart and
// promoted.
#pragma once

#include "ptx/wgmma.cuh"
#include "tile/resources.cuh"

namespace coda {

template <class Config, class Gemm> struct MixedBatches {
    using Operand = typename Gemm::Operand;
    using Cursor = typename Gemm::Cursor;
    using Sums = typename Gemm::Sums;
    using Fragments = typename Operand::Fragments;
    using Words = typename Operand::Words;
    static constexpr int bk = Gemm::bk, batch = Gemm::batch, batches = Gemm::batches, steps = Gemm::steps;
    static constexpr bool promotes = Operand::promotes;

    const Gemm &gemm;
    const int group; // the consumer

    // Sums that are promoted once a slot are made while those of the slot ahead are promoted. Of more groups
    // in a slot registers have one's, and of more than 64 rows those of three consumers.
    static constexpr bool ahead =
        !promotes || (bk == Operand::promotion && (Gemm::groups < 3 || Gemm::n <= 64));
    static constexpr int partial = promotes && ahead ? 2 : 1;
    using Partial = Sums[partial];

    // Batch i of a slot whose partial sums are `phase`.
    template <int phase>
    DEV void issue_batch(Sums &sum, Partial &part, Fragments (&f)[2], int slot, int i) const
    {
        const int k = i * batch;
        if constexpr (promotes) gemm.issue(part[phase], f[i % 2], slot, k, k % Operand::promotion != 0);
        else gemm.issue(sum, f[i % 2], slot, k, true);
    }
    // What is multiplied after batch i of a slot: of the next slot, unless that was the last one.
    template <bool last>
    DEV void decode_next(Fragments (&f)[2], Words &words, int slot, Cursor at, int i) const
    {
        Fragments &to = f[1 - i % 2];
        if (i + 1 < batches) decode(to, words, slot, (i + 1) * batch);
        else if (!last) {
            gemm.await(at);
            decode(to, words, at.slot, 0);
        }
        Gemm::pin(to);
    }
    // Of more than 64 rows of three consumers a slot's words are all loaded with its first batch: of shorter
    // pieces those of every second row are in the same banks. Of 64 rows and fewer that gains nothing.
    DEV void decode(Fragments &to, Words &words, int slot, int k) const
    {
        const Operand own = gemm.operand(slot, group);
        if constexpr (Operand::by_slots && !ahead) {
            if (k == 0) own.load(words);
            own.decode(to, words, k);
        } else own.decode(to, k);
    }
    // A slot whose first batch has been issued. A batch is decoded and issued before the one ahead of it is
    // waited for: so the products of a consumer follow each other without a gap.
    template <int phase, bool last>
    DEV void multiply_ahead(Sums &sum, Partial &part, Fragments (&f)[2], Cursor &at) const
    {
        static_assert(batches % 2 == 0);
        const Cursor own = at;
        at.next();
#pragma unroll
        for (int i = 0; i < batches; i++) {
            const bool within = i + 1 < batches;
            float factor[2];
            if (promotes && !within) gemm.operand(own.slot, group).factors(factor, 0);
            Words none;
            decode_next<last>(f, none, own.slot, at, i);
            if (within) issue_batch<phase>(sum, part, f, own.slot, i + 1);
            else if (!last) issue_batch<(phase + 1) % partial>(sum, part, f, at.slot, 0);
            if (within || !last) ptx::wgmma_wait<1>();
            else ptx::wgmma_wait<0>();
            if (!within) gemm.release(own.slot);
            if (promotes && !within) Gemm::promote(sum, part[phase], factor);
        }
    }
    DEV void multiply_all_ahead(Sums &sum, Fragments (&f)[2], Cursor &at, int slots) const
    {
        Partial part;
        gemm.operand(at.slot, group).decode(f[0], 0);
        issue_batch<0>(sum, part, f, at.slot, 0);
        // Two slots at a time, and one or two before the last: or ptxas lets products run one by one (C7513).
        constexpr int second = partial - 1, rest = Config::dealt ? 1
                                                   : steps > 2   ? 2 - (steps - 1) % 2
                                                                 : steps - 1;
        const int turns = (slots - 1 - rest) / 2;
#pragma unroll 1
        for (int i = 0; i < turns; i++) {
            multiply_ahead<0, false>(sum, part, f, at);
            multiply_ahead<second, false>(sum, part, f, at);
        }
        if constexpr (rest > 0) multiply_ahead<0, false>(sum, part, f, at);
        if constexpr (rest > 1) multiply_ahead<second, false>(sum, part, f, at);
        multiply_ahead<rest % 2 ? second : 0, true>(sum, part, f, at);
    }
    // Each group of a slot is promoted before the next one's products: of 8 bits, or of many rows.
    DEV void multiply_by_groups(Sums &sum, Fragments (&f)[2], Cursor &at, int slots) const
    {
        Sums part;
        Words words;
        decode(f[0], words, at.slot, 0);
#pragma unroll 1
        for (int step = 0; step < slots; step++) {
            const Cursor own = at;
            at.next();
#pragma unroll
            for (int i = 0; i < batches; i++) {
                const int k = i * batch;
                const bool ends = (k + batch) % Operand::promotion == 0;
                float factor[2];
                gemm.issue(part, f[i % 2], own.slot, k, k % Operand::promotion != 0);
                if (ends) gemm.operand(own.slot, group).factors(factor, k);
                if (step + 1 < slots) decode_next<false>(f, words, own.slot, at, i);
                else decode_next<true>(f, words, own.slot, at, i);
                ptx::wgmma_wait<0>();
                if (i + 1 == batches) gemm.release(own.slot);
                if (ends) Gemm::promote(sum, part, factor);
            }
        }
    }

    // So many slots, of which the first one is there.
    DEV void multiply(Sums &sum, Cursor &at, int slots) const
    {
        Fragments f[2];
        if constexpr (ahead) multiply_all_ahead(sum, f, at, slots);
        else multiply_by_groups(sum, f, at, slots);
    }
};

} // namespace coda
