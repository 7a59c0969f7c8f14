// attention_short_sm90.cuh -- attention on Hopper of sequences whose keys are a single block of bn.
//
// A block of one warpgroup has 64 queries of a head, and at once in shared memory all of their keys and
// values:
//
//     S = Q K^T,   P = 2^(c (S - max)) rounded to T,   O = P V / sum
//
// follow one after the other, and nothing of a block overlaps. So two to four blocks share an SM, and while
// one waits for its copies, another one multiplies and a third one computes exponentials: where sequences are
// short, tiles are many, and each spends most of its time in waiting. Beside its ring attention_sm90.cuh has
// one block on an SM.
//
// Columns are padded to a multiple of 64 and rows past the end are read as zeros by TMA; values past a
// sequence's length are zeroed, since zero times NaN is NaN. Tiles of a head are neighbours in the grid and
// find its keys in L2. Every sum has a fixed order.
//
// Config: as attention_sm90.cuh has it, but for box, stages, groups and cluster; no pages, ranges or starts.
// bn is at least the launch's tk.
#pragma once
#include "attention/fragment.cuh"
#include "ptx/barrier.cuh"
#include "ptx/control.cuh"
#include "ptx/tma.cuh"
#include "ptx/wgmma.cuh"

namespace coda {

template <class Config> struct AttentionShort {
    struct Tiled : Config {
        static constexpr i32 bm = 64;
    };
    using Element = typename Tiled::T;
    static constexpr i32 bm = Tiled::bm, bn = Tiled::bn;
    static constexpr i32 chunks = (Tiled::head_dim + 63) / 64;       // of 64 columns: a swizzled row
    static constexpr i32 columns = (Tiled::head_dim + 15) / 16 * 16; // of the result's fragment
    static_assert(!Tiled::page && !Tiled::ranges && !Tiled::starts && !Tiled::k_scales && !Tiled::v_scales);

    struct alignas(swizzle_atom) Shared { // tiles are chunks of [rows][64]
        u8 queries[chunks][bm * swizzle_row];
        u8 keys[chunks][bn * swizzle_row];
        u8 values[chunks][bn * swizzle_row];
        u64 full_keys, full_values; // queries and keys; values
    };
    static constexpr i32 shared_bytes = sizeof(Shared);

    struct Tile {
        i32 batch, head, query; // the tile's first one
    };

    Shared &s;
    const AttentionInputs &in;

    DEV Tile tile(u32 index) const
    {
        const i32 stream = in.extents.whole.quotient(index);
        const i32 batch = stream / Tiled::heads, part = index - stream * (i32)in.extents.whole.number;
        return {batch, stream - batch * Tiled::heads, part * bm};
    }

    // ---- Copies, by one thread ----

    template <i32 rows>
    DEV static void load(u8 (&to)[chunks][rows * swizzle_row], u32 bar, const TensorMap &map, i32 head,
                         i32 time, i32 batch)
    {
        for (i32 c = 0; c < chunks; c++)
            ptx::tma_load(ptx::shared_address(to[c]), &map, bar, 64 * c, head, time, batch);
    }
    DEV void load(const TensorMap &q, const TensorMap &k, const TensorMap &v, const Tile &t) const
    {
        const u32 keys = ptx::shared_address(&s.full_keys), values = ptx::shared_address(&s.full_values);
        ptx::mbarrier_arrive_expect(keys, sizeof s.queries + sizeof s.keys);
        load<bm>(s.queries, keys, q, t.head, t.query, t.batch);
        load<bn>(s.keys, keys, k, t.head / Tiled::group, 0, t.batch);
        ptx::mbarrier_arrive_expect(values, sizeof s.values);
        load<bn>(s.values, values, v, t.head / Tiled::group, 0, t.batch);
    }

    // ---- Products ----

    DEV static u64 descriptor(const u8 *tile, u32 leading)
    {
        return ptx::wgmma_descriptor(ptx::shared_address(tile), leading, swizzle_atom);
    }

    // S = Q K^T.
    DEV void multiply_keys(float (&score)[bn / 2]) const
    {
        const u64 a = descriptor(s.queries[0], 16), b = descriptor(s.keys[0], 16);
        ptx::mbarrier_wait(ptx::shared_address(&s.full_keys), 0);
        ptx::wgmma_fence();
        coda::multiply_keys<Element, Tiled::head_dim, swizzle_row * bm, bn>(score, a, b);
        ptx::wgmma_commit();
        ptx::wgmma_wait<0>();
        pin(score);
    }

    // O = P V. 16 keys are two groups of 8 rows of 128 bytes.
    DEV void multiply_values(float (&out)[columns / 2], u32 (&weight)[bn / 16][4]) const
    {
        const u64 b = descriptor(s.values[0], bn * swizzle_row);
        pin(weight);
        ptx::wgmma_fence();
#pragma unroll
        for (i32 i = 0; i < bn / 16; i++)
            ptx::Wgmma<Element, columns>::template mma<1>(out, weight[i],
                                                          b + i * 2 * swizzle_atom / descriptor_unit, i);
        ptx::wgmma_commit();
        ptx::wgmma_wait<0>();
        pin(out);
    }

    // Waits for the values, and zeroes those of the keys from `keys` on.
    DEV void await_values(i32 keys) const
    {
        ptx::mbarrier_wait(ptx::shared_address(&s.full_values), 0);
        if (!Tiled::lengths || keys >= bn) return;
        for (i32 c = 0; c < chunks; c++)
            for (i32 e = keys * 8 + threadIdx.x; e < bn * 8; e += 128)
                reinterpret_cast<uint4 *>(s.values[c])[e] = uint4();
        ptx::fence_async_shared();
        __syncthreads();
    }

    // ---- A tile ----

    DEV BiasRow<Tiled> bias_of(const Tile &t, const Visible<Tiled> &see, i32 query) const
    {
        return {in, t.batch, t.head, min(query, see.rows() - 1)};
    }
    DEV void weigh(float (&score)[bn / 2], OnlineSoftmax &softmax, const Visible<Tiled> &see,
                   const Score<Tiled> &as, const Tile &t, i32 query) const
    {
        const i32 position = query + see.shift();
        if constexpr (Score<Tiled>::biased) {
            const BiasRow<Tiled> bias[2] = {bias_of(t, see, query), bias_of(t, see, query + 8)};
            coda::score(score, as, bias, position, 0, see.extents.tk);
        } else if (!Score<Tiled>::plain || Score<Tiled>::turned) coda::score(score, as, position, 0);
        const KeyRange common = see.common(t.query, t.query + bm - 1);
        if (bn > common.end || common.first > 0) mask(score, see, query, 0);
        float factor[2]; // there is no sum yet that it could shrink
        softmax.template step<2>(score, Score<Tiled>::exponent, factor);
    }

    DEV void attend(const Tile &t, Element *result, const AttentionStrides &stride) const
    {
        const i32 query = t.query + threadIdx.x / 32 * 16 + threadIdx.x % 32 / 4;
        const Visible<Tiled> see(in, t.batch);
        const Score<Tiled> as(in, t.head);
        OnlineSoftmax softmax;
        float score[bn / 2], out[columns / 2];
        u32 weight[bn / 16][4];
        multiply_keys(score);
        weigh(score, softmax, see, as, t, query);
        pack_weights<Element>(score, weight);
        await_values(see.keys);
        multiply_values(out, weight);
        if (Visible<Tiled>::mixed) clear_rows_without_keys(out, see, query);
        Element *to = result + t.batch * stride.batch + t.head * stride.head;
        write_rows(out, softmax, see, as, query, to, stride.time, in, t.batch, t.head);
    }

    template <class Block>
    DEV static void run(const Block &mine, const TensorMap &q, const TensorMap &k, const TensorMap &v,
                        Element *out, const AttentionStrides &stride, const AttentionInputs &in)
    {
        const AttentionShort self{*reinterpret_cast<Shared *>(mine.shared()), in};
        const Tile tile = self.tile(mine.index());
        if (threadIdx.x == 0) {
            ptx::tma_prefetch_map(&q);
            ptx::tma_prefetch_map(&k);
            ptx::tma_prefetch_map(&v);
            ptx::mbarrier_init(ptx::shared_address(&self.s.full_keys), 1);
            ptx::mbarrier_init(ptx::shared_address(&self.s.full_values), 1);
            ptx::mbarrier_fence_init();
            ptx::fence_async_shared(); // TMA counts there before anybody has met
        }
        ptx::grid_launch_next(); // as soon as blocks end
        ptx::grid_wait();
        if (threadIdx.x == 0) self.load(q, k, v, tile);
        __syncthreads();
        self.attend(tile, out, stride);
    }
};

} // namespace coda
