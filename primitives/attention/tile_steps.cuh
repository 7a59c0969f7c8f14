// tile_steps.cuh -- a consumer of attention_sm90.cuh, a warpgroup that owns 64 queries: its products, and how
// scores become weights between them, one block of keys after the other.
#pragma once
#include "attention/fragment.cuh"
#include "attention/online_softmax.cuh"
#include "attention/tiles.cuh"
#include "ptx/control.cuh"
#include "ptx/matrix.cuh"
#include "ptx/wgmma.cuh"

namespace coda {

template <class Config> struct AttentionSteps {
    using Tiles = AttentionTiles<Config>;
    using Tiled = typename Tiles::Tiled;
    using Element = typename Tiled::T;
    using Shared = typename Tiles::Shared;
    using View = typename Tiles::View;
    static constexpr i32 bm = Tiles::bm, bn = Tiles::bn, chunks = Tiles::chunks, depth = Tiles::depth;
    static constexpr i32 groups = Tiles::groups, columns = Tiles::columns;
    static constexpr bool held = Tiles::held;

    Shared &s;
    const i32 group = ptx::uniform(threadIdx.x / 128) - 1, thread = threadIdx.x % 128;
    typename Tiles::Cursor key, value;
    typename Tiles::QueryCursor tile_queries;
    float score[bn / 2], out[columns / 2];
    u32 weight[bn / 16][4], own[held ? depth : 1][4]; // own: queries

    DEV explicit AttentionSteps(Shared &shared) : s(shared) {}

    DEV i32 first_row() const { return 64 * group + thread / 32 * 16 + thread % 32 / 4; } // of the tile

    DEV static u64 descriptor(const u8 *tile, u32 leading)
    {
        return ptx::wgmma_descriptor(ptx::shared_address(tile), leading, swizzle_atom);
    }

    // The warp's 16 queries become the A fragments of all products of the tile.
    DEV void hold_queries()
    {
        const u32 from = ptx::shared_address(s.queries[tile_queries.slot][0]) + group * box_bytes;
        const u32 row = thread / 32 * 16 + thread % 16, odd = thread % 32 / 16;
#pragma unroll
        for (i32 i = 0; i < depth; i++) {
            const u32 piece = (2 * i % 8 + odd) ^ row % 8; // of the 16 bytes of a swizzled row
            ptx::ldmatrix(from + i / 4 * (bm * swizzle_row) + row * swizzle_row + piece * 16, own[i]);
        }
        ptx::named_barrier(barrier_group + group, 128);
        release_queries();
    }
    DEV void take_queries()
    {
        Tiles::wait(s.full_queries[tile_queries.slot], tile_queries.parity);
        if constexpr (held) hold_queries();
    }
    DEV void release_queries()
    {
        release(s.empty_queries[tile_queries.slot]);
        tile_queries.next();
    }

    // S = Q K^T.
    DEV void issue_scores()
    {
        u64 b = descriptor(s.keys[key.slot][0], 16);
        pin(score);
        if constexpr (held) pin(own);
        ptx::wgmma_fence();
        if constexpr (held) multiply_keys<Element, bn>(score, own, b);
        else
            multiply_keys<Element, Tiled::head_dim, swizzle_row * bm, bn>(
                score, descriptor(s.queries[tile_queries.slot][0] + group * box_bytes, 16), b);
        ptx::wgmma_commit();
    }

    // O += P V. 16 keys are two groups of 8 rows of 128 bytes.
    DEV void issue_values()
    {
        u64 b = descriptor(s.values[value.slot][0], bn * swizzle_row);
        pin(out);
        pin(weight);
        ptx::wgmma_fence();
#pragma unroll
        for (i32 i = 0; i < bn / 16; i++)
            ptx::Wgmma<Element, columns>::template mma<1>(out, weight[i],
                                                          b + i * 2 * swizzle_atom / descriptor_unit, 1);
        ptx::wgmma_commit();
    }

    // All products but the newest `pending` are done.
    template <i32 pending> DEV void finish()
    {
        ptx::wgmma_wait<pending>();
        pin(score);
        if (pending == 0) pin(out);
    }

    DEV void release(u64 &empty)
    {
        if (thread == 0) ptx::mbarrier_arrive(ptx::shared_address(&empty));
    }
    DEV void release_keys()
    {
        release(s.empty_keys[key.slot]);
        key.next();
    }
    DEV void release_values()
    {
        release(s.empty_values[value.slot]);
        value.next();
    }

    // Zeroes the values of the keys from `rows` on. Both warpgroups do, so neither waits for the other.
    DEV void clear_values(i32 rows)
    {
        for (i32 c = 0; c < chunks; c++)
            for (i32 e = rows * 8 + thread; e < bn * 8; e += 128)
                reinterpret_cast<uint4 *>(s.values[value.slot][c])[e] = uint4();
        ptx::fence_async_shared();
        ptx::named_barrier(barrier_group + group, 128);
    }
    DEV void await_values(const Visible<Tiled> &see, i32 block)
    {
        Tiles::wait(s.full_values[value.slot], value.parity);
        if (Tiled::lengths && see.keys < block * bn + bn) clear_values(see.keys - block * bn);
    }

    // Products become scores.
    DEV void turn_into_scores(const View &of, i32 block)
    {
        if constexpr (Score<Tiled>::biased)
            coda::score(score, of.score, of.bias, of.query + of.see.shift(), block * bn, of.see.extents.tk);
        else if (!Score<Tiled>::plain || Score<Tiled>::turned)
            coda::score(score, of.score, of.query + of.see.shift(), block * bn);
        KeyRange common = of.common();
        if (block * bn + bn > common.end || block * bn < common.first)
            mask(score, of.see, of.query, block * bn);
    }
    // Scores become weights, not yet packed. Is any factor of the warp's not 1?
    DEV bool weigh(OnlineSoftmax &softmax, float (&factor)[2])
    {
        if constexpr (Score<Tiled>::plain) // whatever groups there are, which the queries' number decides
            return softmax.step_lazily(score, Score<Tiled>::exponent, factor);
        constexpr bool ends = Tiled::window || Tiled::ranges;                  // blocks come last one first
        softmax.template step<2, ends>(score, Score<Tiled>::exponent, factor); // in fewer registers
        return true;
    }
    DEV void shrink(const float (&factor)[2])
    {
#pragma unroll
        for (i32 i = 0; i < columns / 2; i++) out[i] *= factor[i >> 1 & 1];
    }
    // Where all queries see all keys, weights are speculative: by the largest score so far. A block's own
    // is looked for only where they are too large. That gains time up to 96 columns, in whatever groups.
    static constexpr bool speculates = Score<Tiled>::plain && Tiled::smalls && !Tiled::page &&
                                       !Tiled::sinks && !Tiled::lse && Tiled::head_dim <= 96;
    // Do such weights fit in all threads of the warpgroup? If not, it multiplies the block again.
    // Before they are asked again all have had their turn, so none is late in reading, or in clearing.
    DEV bool agree(bool fits)
    {
        static_assert(!speculates || in_turns);
        volatile u32 *const far = s.far + group;
        if (!fits) *far = 1;
        ptx::named_barrier(barrier_group + group, 128);
        if (*far == 0) return true;
        ptx::named_barrier(barrier_group + group, 128);
        *far = 0;
        return false;
    }
    // A tile's first block: S, with nothing beside it.
    DEV void attend_first(OnlineSoftmax &softmax, const View &of, i32 block)
    {
        float factor[2];
        take_queries();
        Tiles::wait(s.full_keys[key.slot], key.parity);
        issue_scores();
        finish<0>();
        release_keys();
        turn_into_scores(of, block);
        weigh(softmax, factor);
        pack_weights<Element>(score, weight);
    }
    static constexpr bool in_turns = Tiles::carried; // all warpgroups have as many tiles
    DEV void pass_turn() const { ptx::named_arrive(barrier_turn + (group + 1) % groups, 256); }
    // S of one block beside O += P V of the one before it, which may be another tile's; then the former
    // become weights, which are not yet packed.
    template <bool follows> // in the same tile
    DEV bool attend_next(OnlineSoftmax &softmax, const View &of, i32 block, const View &before,
                         i32 block_before, float (&factor)[2])
    {
        Tiles::wait(s.full_keys[key.slot], key.parity);
        if (in_turns) ptx::named_barrier(barrier_turn + group, 256);
        issue_scores();
        await_values(before.see, block_before);
        issue_values();
        if (in_turns) pass_turn();
        finish<1>();
        turn_into_scores(of, block);
        if constexpr (follows && speculates) {
            float parts[2];
            const bool fits =
                softmax.template step_speculatively<Element>(score, Score<Tiled>::exponent, parts);
            finish<0>();
            release_values();
            if (!agree(fits)) {
                issue_scores();
                finish<0>();
                turn_into_scores(of, block);
                if (softmax.template step_again<Element>(score, Score<Tiled>::exponent, parts, factor))
                    shrink(factor);
            } else softmax.add(parts);
            release_keys();
            return false;
        }
        release_keys();
        const bool shrinks = weigh(softmax, factor);
        finish<0>();
        release_values();
        return shrinks;
    }
    // All that follows the first S but for the last O += P V.
    DEV void attend_others(OnlineSoftmax &softmax, const View &of, KeyBlocks b)
    {
        float factor[2];
        for (i32 j = b.end - 2; j >= b.first; j--) {
            if (attend_next<true>(softmax, of, j, of, j + 1, factor)) shrink(factor);
            pack_weights<Element>(score, weight);
        }
        if (!held) release_queries();
    }
    DEV void attend_last(const View &of, i32 block)
    {
        await_values(of.see, block);
        issue_values();
        finish<0>();
        release_values();
    }
    DEV void clear_out()
    {
#pragma unroll
        for (float &x : out) x = 0.0f;
    }
};

} // namespace coda
