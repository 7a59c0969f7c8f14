// tile_loads.cuh -- the producer of attention_sm90.cuh: one thread, whose warp finds the blocks where there
// are ranges, or its tile. It fills the rings of queries, keys and values.
#pragma once
#include "attention/pages.cuh"
#include "attention/tiles.cuh"
#include "ptx/tma.cuh"

namespace coda {

template <class Config> struct AttentionLoads {
    using Tiles = AttentionTiles<Config>;
    using Tiled = typename Tiles::Tiled;
    using Shared = typename Tiles::Shared;
    static constexpr i32 bm = Tiles::bm, bn = Tiles::bn, chunks = Tiles::chunks;

    static constexpr i32 threads = Tiled::ranges || Tiled::page || Tiled::starts ? 32 : 1;

    // Loads one tile of `rows` rows from time `from` on.
    template <i32 rows>
    DEV static void load_tile(u8 (*to)[rows * swizzle_row], u64 &full, const TensorMap &map, i32 from,
                              i32 head, i32 batch)
    {
        u32 bar = ptx::shared_address(&full);
        ptx::mbarrier_arrive_expect(bar, chunks * rows * swizzle_row);
        for (i32 c = 0; c < chunks; c++)
            ptx::tma_load(ptx::shared_address(to[c]), &map, bar, 64 * c, head, from, batch);
    }

    using Copies = KeyCopies<Tiled, bn>;
    DEV static void load_block(u8 (*to)[bn * swizzle_row], u64 &full, const TensorMap &map,
                               const Copies &copies, i32 head, i32 batch)
    {
        u32 bar = ptx::shared_address(&full);
        if (Copies::lane() == 0) ptx::mbarrier_arrive_expect(bar, chunks * bn * swizzle_row);
        if (Copies::lanes > 1) __syncwarp();
        copies.run(batch, [&](i32 row, i32 time, i32 sequence) {
            for (i32 c = 0; c < chunks; c++)
                ptx::tma_load(ptx::shared_address(to[c] + row * swizzle_row), &map, bar, 64 * c, head, time,
                              sequence);
        });
    }

    template <class Block>
    DEV static void run(const Block &mine, Shared &s, const TensorMap &q, const TensorMap &k,
                        const TensorMap &v, const AttentionInputs &in)
    {
        auto key = Tiles::Cursor::producer(), value = Tiles::Cursor::producer();
        auto query = Tiles::QueryCursor::producer();
        for (TileWalk<Tiled> tile(in); tile.next(mine);) {
            KeyBlocks b = Tiles::blocks_of(Tiles::visible(in, tile), tile);
            if ((i32)threadIdx.x >= Copies::lanes || b.first == b.end) continue;
            i32 head = tile.head / Tiled::group;
            auto load_keys = [&](i32 block) {
                const Copies copies(in, tile.batch, block);
                Tiles::wait(s.empty_keys[key.slot], key.parity);
                load_block(s.keys[key.slot], s.full_keys[key.slot], k, copies, head, tile.batch);
                key.next();
            };
            auto load_values = [&](i32 block) {
                const Copies copies(in, tile.batch, block);
                Tiles::wait(s.empty_values[value.slot], value.parity);
                load_block(s.values[value.slot], s.full_values[value.slot], v, copies, head, tile.batch);
                value.next();
            };
            // No other lane waits: one that looked late could find the slot filled and given back once more.
            if (Copies::lane() == 0) {
                Tiles::wait(s.empty_queries[query.slot], query.parity);
                load_tile<bm>(s.queries[query.slot], s.full_queries[query.slot], q, tile.query, tile.head,
                              Tiles::batch_of(tile));
            }
            query.next();
            load_keys(b.end - 1);
#pragma unroll 1 // of a known number of blocks: registers are few here
            for (i32 j = b.end - 1; j > b.first; j--) {
                load_keys(j - 1);
                load_values(j);
            }
            load_values(b.first);
        }
    }
};

} // namespace coda
