// tiles.cuh -- what producer and consumers of attention_sm90.cuh have in common: a tile's extents, shared
// memory, what its queries see.
#pragma once
#include "attention/bias.cuh"
#include "attention/merge.cuh"
#include "attention/packed.cuh"
#include "attention/score.cuh"
#include "attention/tile_walk.cuh"
#include "ptx/barrier.cuh"
#include "ptx/cluster.cuh"
#include "ptx/control.cuh"
#include "tile/resources.cuh"
#include "tile/ring.cuh"

namespace coda {

template <class Config> struct AttentionTiles {
    struct Tiled : Config {
        static constexpr i32 bm = 64 * Config::groups;
        static constexpr bool carried = Config::query_slots > 1 || Config::held;
        static constexpr bool smalls = carried && !Config::starts && !Config::limited && !Config::lengths &&
                                       !Visible<Config>::mixed; // tiles of 64 may come last
    };
    using Element = typename Tiled::T;
    static constexpr i32 bm = Tiled::bm, bn = Tiled::bn, stages = Tiled::stages, groups = Tiled::groups;
    static constexpr i32 chunks = (Tiled::head_dim + 63) / 64; // of 64 columns: 128 bytes, a swizzled row
    static constexpr i32 depth = (Tiled::head_dim + 15) / 16;  // products of 16 columns, which are a score
    static constexpr i32 by = Tiled::head_dim > 64 && Tiled::head_dim < 96 ? 8 : 16;
    static constexpr i32 columns = (Tiled::head_dim + by - 1) / by * by; // of the result's fragment
    static constexpr i32 threads = 128 * (1 + groups);
    using Registers =
        AttentionRegisters<groups, Tiled::page != 0 || Tiled::starts || Tiled::ranges || Tiled::window != 0>;

    static constexpr i32 query_slots = Tiled::query_slots;
    static constexpr bool held = Tiled::held, carried = Tiled::carried;

    struct alignas(swizzle_atom) Shared { // tiles are chunks of [rows][64]
        u8 queries[query_slots][chunks][bm * swizzle_row];
        u8 keys[stages][chunks][bn * swizzle_row];
        u8 values[stages][chunks][bn * swizzle_row];
        u64 full_queries[query_slots], empty_queries[query_slots];
        u64 full_keys[stages], empty_keys[stages], full_values[stages], empty_values[stages];
        u32 far[groups]; // has a row scores that are much larger than those before?
    };
    static constexpr i32 shared_bytes = sizeof(Shared);

    // In place of all that, when a cluster's blocks are done with their keys.
    static constexpr i32 cluster = Tiled::cluster;
    struct Exchange {
        alignas(16) float out[bm][columns];
        Peak peak[bm];
    };
    static_assert(sizeof(Exchange) <= sizeof(Shared) && bm % cluster == 0);
    static_assert(!Tiled::k_scales && !Tiled::v_scales);

    using Cursor = RingCursor<stages>; // of keys, or of values
    using QueryCursor = RingCursor<query_slots>;

    DEV static Visible<Tiled> visible(const AttentionInputs &in, const TileWalk<Tiled> &tile)
    {
        if constexpr (Tiled::starts) return Visible<Tiled>(in, tile);
        else return Visible<Tiled>(in, tile.batch);
    }
    // The batch of q.
    DEV static i32 batch_of(const TileWalk<Tiled> &tile) { return Tiled::starts ? 0 : tile.batch; }
    DEV static KeyBlocks blocks_of(const Visible<Tiled> &see, const TileWalk<Tiled> &tile)
    {
        if constexpr (Tiled::shares)
            if (tile.is_part()) return tile.part_blocks();
        KeyBlocks b = key_blocks<Tiled>(see, tile.query, min(tile.query + bm, see.rows()) - 1);
        if (cluster > 1) {
            const i32 rank = (i32)ptx::cluster_rank(), all = b.end - b.first;
            b.end = b.first + all * (rank + 1) / cluster;
            b.first += all * rank / cluster;
        }
        return b;
    }

    DEV static void wait(u64 &bar, u32 phase) { ptx::mbarrier_wait(ptx::shared_address(&bar), phase); }
    DEV static void init(u64 &bar, u32 arrivals) { ptx::mbarrier_init(ptx::shared_address(&bar), arrivals); }

    // What a thread knows of its tile: its first row, what its warpgroup's 64 queries see, how they score.
    struct View {
        Visible<Tiled> see;
        Score<Tiled> score;
        i32 query; // the thread's first row
        BiasRow<Tiled> bias[2];
        KeyRange seen; // with ranges: by all of the warpgroup's queries

        DEV View(const AttentionInputs &in, const TileWalk<Tiled> &tile, i32 row)
            : see(visible(in, tile)), score(in, tile.head),
              query(tile.query + row), bias{{in, tile.batch, tile.head, min(query, see.rows() - 1)},
                                            {in, tile.batch, tile.head, min(query + 8, see.rows() - 1)}}
        {
            if (Tiled::ranges) seen = see.common(first(), first() + 63);
        }
        DEV i32 first() const // of the warpgroup
        {
            if constexpr (Tiled::starts) return query - threadIdx.x % 128 / 32 * 16 - threadIdx.x % 32 / 4;
            else return query / 64 * 64;
        }
        DEV KeyRange common() const { return Tiled::ranges ? seen : see.common(first(), first() + 63); }
    };

    // All threads of the cluster: what was written before is seen afterwards.
    DEV static void meet()
    {
        ptx::cluster_arrive();
        ptx::cluster_wait();
    }
};

} // namespace coda
