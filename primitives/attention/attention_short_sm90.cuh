// attention_short_sm90.cuh -- attention on Hopper of queries that see few keys: a warpgroup for 64 of them.
//
// A block of one warpgroup has 64 queries of a head, and walks the keys that they see by bn:
//
//     S = Q K^T,   P = 2^(c (S - max)) rounded to T,   O += P V
//
// follow one after the other, and nothing of a block overlaps but its copies. So two to six blocks share an
// SM, and while one waits, another one multiplies and a third one computes exponentials: where sequences are
// short, tiles are many, and each spends most of its time in waiting. Beside its ring attention_sm90.cuh has
// one block on an SM.
//
// Keys and values take turns in a ring of three slots, K V K, V K V: what lies three further on is asked for
// when all warps have multiplied what was there. Where all keys are one block there are two slots. Blocks of
// keys begin where the first one that is seen does, so that of sentences which lie one behind the other
// (ranges) one or two hold all that 64 queries see. Ranges and lengths that no program of the run writes
// (Config::early) are read before the kernel ahead has ended.
//
// Columns are padded to a multiple of 64 and rows past the end are read as zeros by TMA; values past a
// sequence's length are zeroed, since zero times NaN is NaN. Tiles of a head are neighbours in the grid and
// find its keys in L2. Every sum has a fixed order.
//
// Config: as attention_sm90.cuh has it, but for box, stages, groups and cluster; no pages or starts.
// slots is 3, or 2 where bn is at least the launch's tk.
#pragma once
#include "attention/fragment.cuh"
#include "ptx/barrier.cuh"
#include "ptx/control.cuh"
#include "ptx/tma.cuh"
#include "ptx/wgmma.cuh"
#include "tile/ring.cuh"

namespace coda {

template <class Config> struct AttentionShort {
    struct Tiled : Config {
        static constexpr i32 bm = 64;
    };
    using Element = typename Tiled::T;
    static constexpr i32 bm = Tiled::bm, bn = Tiled::bn, slots = Tiled::slots;
    static constexpr bool once = slots == 2; // all keys are one block
    static constexpr i32 chunks = (Tiled::head_dim + 63) / 64;       // of 64 columns: a swizzled row
    static constexpr i32 columns = (Tiled::head_dim + 15) / 16 * 16; // of the result's fragment
    static_assert(!Tiled::page && !Tiled::starts && !Tiled::k_scales && !Tiled::v_scales);

    struct alignas(swizzle_atom) Shared { // tiles are chunks of [rows][64]
        u8 queries[chunks][bm * swizzle_row];
        u8 slot[slots][chunks][bn * swizzle_row];
        u64 full[slots]; // the first one of the queries, too
    };
    static constexpr i32 shared_bytes = sizeof(Shared);

    struct Tile {
        i32 batch, head, query; // the tile's first one
    };
    // Keys that some query of the tile sees lie in `some`, those of `common` all see.
    struct Seen {
        KeyRange some, common;
    };
    using Cursor = RingCursor<slots>;

    Shared &s;
    const AttentionInputs &in;

    DEV Tile tile(u32 index) const
    {
        const i32 stream = in.extents.whole.quotient(index);
        const i32 batch = stream / Tiled::heads, part = index - stream * (i32)in.extents.whole.number;
        return {batch, stream - batch * Tiled::heads, part * bm};
    }

    // ---- Copies, by one thread ----

    DEV u32 full(i32 slot) const { return ptx::shared_address(&s.full[slot]); }
    template <i32 rows>
    DEV static void load(u8 (&to)[chunks][rows * swizzle_row], u32 bar, const TensorMap &map, i32 head,
                         i32 time, i32 batch)
    {
        for (i32 c = 0; c < chunks; c++)
            ptx::tma_load(ptx::shared_address(to[c]), &map, bar, 64 * c, head, time, batch);
    }
    DEV void load_slot(i32 slot, const TensorMap &map, const Tile &t, i32 key, u32 beside = 0) const
    {
        ptx::mbarrier_arrive_expect(full(slot), sizeof s.slot[slot] + beside);
        load<bn>(s.slot[slot], full(slot), map, t.head / Tiled::group, key, t.batch);
    }
    DEV void load_first(const TensorMap &q, const TensorMap &k, const TensorMap &v, const Tile &t,
                        const KeyRange &keys) const
    {
        load_slot(0, k, t, keys.first, sizeof s.queries);
        load<bm>(s.queries, full(0), q, t.head, t.query, t.batch);
        load_slot(1, v, t, keys.first);
        if (!once && keys.first + bn < keys.end) load_slot(2, k, t, keys.first + bn);
    }
    // All warps have multiplied what was there.
    DEV void refill(i32 slot, const TensorMap &map, const Tile &t, i32 key, const KeyRange &keys) const
    {
        if (once || key >= keys.end) return;
        __syncthreads();
        if (threadIdx.x == 0) load_slot(slot, map, t, key);
    }

    // ---- Products ----

    DEV static u64 descriptor(const u8 *tile, u32 leading)
    {
        return ptx::wgmma_descriptor(ptx::shared_address(tile), leading, swizzle_atom);
    }

    // S = Q K^T.
    DEV void multiply_keys(float (&score)[bn / 2], const Cursor &at) const
    {
        const u64 a = descriptor(s.queries[0], 16), b = descriptor(s.slot[at.slot][0], 16);
        ptx::mbarrier_wait(full(at.slot), at.parity);
        ptx::wgmma_fence();
        coda::multiply_keys<Element, Tiled::head_dim, swizzle_row * bm, bn>(score, a, b);
        ptx::wgmma_commit();
        ptx::wgmma_wait<0>();
        pin(score);
    }

    // O += P V. 16 keys are two groups of 8 rows of 128 bytes.
    DEV void multiply_values(float (&out)[columns / 2], u32 (&weight)[bn / 16][4], i32 slot) const
    {
        const u64 b = descriptor(s.slot[slot][0], bn * swizzle_row);
        pin(weight);
        pin(out);
        ptx::wgmma_fence();
#pragma unroll
        for (i32 i = 0; i < bn / 16; i++)
            ptx::Wgmma<Element, columns>::template mma<1>(out, weight[i],
                                                          b + i * 2 * swizzle_atom / descriptor_unit, true);
        ptx::wgmma_commit();
        ptx::wgmma_wait<0>();
        pin(out);
    }

    // Waits for the values, and zeroes those of the block's keys from `keys` on.
    DEV void await_values(const Cursor &at, i32 keys) const
    {
        ptx::mbarrier_wait(full(at.slot), at.parity);
        if (!Tiled::lengths || keys >= bn) return;
        for (i32 c = 0; c < chunks; c++)
            for (i32 e = keys * 8 + threadIdx.x; e < bn * 8; e += 128)
                reinterpret_cast<uint4 *>(s.slot[at.slot][c])[e] = uint4();
        ptx::fence_async_shared();
        __syncthreads();
    }

    // ---- A tile ----

    DEV BiasRow<Tiled> bias_of(const Tile &t, const Visible<Tiled> &see, i32 query) const
    {
        return {in, t.batch, t.head, min(query, see.rows() - 1)};
    }
    // Scores of the block that begins with `key` become weights.
    DEV void weigh(float (&score)[bn / 2], OnlineSoftmax &softmax, float (&factor)[2],
                   const VisibleRows<Tiled> &see, const Score<Tiled> &as, const Tile &t, i32 query, i32 key,
                   const KeyRange &common) const
    {
        const i32 position = query + see.shift();
        if constexpr (Score<Tiled>::biased) {
            const BiasRow<Tiled> bias[2] = {bias_of(t, see, query), bias_of(t, see, query + 8)};
            coda::score(score, as, bias, position, key, see.extents.tk);
        } else if (!Score<Tiled>::plain || Score<Tiled>::turned) coda::score(score, as, position, key);
        if (key + bn > common.end || common.first > key) mask(score, see, query, key);
        if constexpr (Score<Tiled>::plain && bn > 64)
            softmax.step_lazily(score, Score<Tiled>::exponent, factor);
        else softmax.template step<2, true>(score, Score<Tiled>::exponent, factor); // in fewer registers
    }

    // What the tile's queries see, for all lanes of a warp together. Blocks begin at a multiple of 8 keys, as
    // pairs of a bias do.
    DEV static Seen seen_by(const Visible<Tiled> &see, i32 from)
    {
        Seen all = {{see.extents.tk, 0}, {0, see.extents.tk}};
        if constexpr (!Tiled::ranges) all = {see.some(from, from + bm - 1), see.common(from, from + bm - 1)};
        else {
#pragma unroll // all that queries load is on its way at one time
            for (i32 i = 0; i < bm; i += 32) {
                const KeyRange r = see.of(min(from + i + (i32)threadIdx.x % 32, see.rows() - 1));
                all.common = {max(all.common.first, r.first), min(all.common.end, r.end)};
                if (!r.empty()) all.some = {min(all.some.first, r.first), max(all.some.end, r.end)};
            }
            all.some = {warp_min(all.some.first), warp_max(all.some.end)};
            all.common = {warp_max(all.common.first), warp_min(all.common.end)};
        }
        all.some.first &= ~7;
        return all;
    }

    DEV void attend(const Tile &t, const TensorMap &q, const TensorMap &k, const TensorMap &v,
                    Element *result, const AttentionStrides &stride) const
    {
        Tiled::early ? ptx::grid_wait_not() : ptx::grid_wait();
        const i32 query = t.query + threadIdx.x / 32 * 16 + threadIdx.x % 32 / 4;
        const VisibleRows<Tiled> see(in, t.batch, query);
        const Seen seen = seen_by(see, t.query);
        if (Tiled::early) ptx::grid_wait();
        if (threadIdx.x == 0 && !seen.some.empty()) load_first(q, k, v, t, seen.some);
        __syncthreads(); // the barriers are there
        const Score<Tiled> as(in, t.head);
        OnlineSoftmax softmax;
        float out[columns / 2] = {};
        Cursor at;
#pragma unroll 1
        for (i32 key = seen.some.first; key < seen.some.end; key += bn) {
            float score[bn / 2], factor[2];
            u32 weight[bn / 16][4];
            multiply_keys(score, at);
            refill(at.slot, v, t, key + bn, seen.some);
            at.next();
            weigh(score, softmax, factor, see, as, t, query, key, seen.common);
            pack_weights<Element>(score, weight);
#pragma unroll
            for (i32 i = 0; i < columns / 2; i++) out[i] *= factor[i / 2 % 2];
            await_values(at, see.keys - key);
            multiply_values(out, weight, at.slot);
            refill(at.slot, k, t, key + 2 * bn, seen.some);
            at.next();
            if (once) break;
        }
        if (Visible<Tiled>::mixed) clear_rows_without_keys(out, see, query);
        Element *to = result + t.batch * stride.batch + t.head * stride.head;
        write_rows(out, softmax, see, as, query, to, stride.time, in, t.batch, t.head);
    }

    template <class Block>
    DEV static void run(const Block &mine, const TensorMap &q, const TensorMap &k, const TensorMap &v,
                        Element *out, const AttentionStrides &stride, const AttentionInputs &in)
    {
        const AttentionShort self{*reinterpret_cast<Shared *>(mine.shared()), in};
        if (threadIdx.x == 0) {
            ptx::tma_prefetch_map(&q);
            ptx::tma_prefetch_map(&k);
            ptx::tma_prefetch_map(&v);
            for (i32 i = 0; i < slots; i++) ptx::mbarrier_init(self.full(i), 1);
            ptx::mbarrier_fence_init();
            ptx::fence_async_shared(); // TMA counts there before anybody has met
        }
        ptx::grid_launch_next(); // as soon as blocks end
        self.attend(self.tile(mine.index()), q, k, v, out, stride);
    }
};

} // namespace coda
