// split_items.cuh -- what attention_split_sm90.cuh shares out: items, the walks of a cluster over them, a
// block's shared memory, where keys lie in it.
#pragma once
#include "attention/inboxes.cuh"
#include "attention/merge.cuh"
#include "attention/narrow.cuh"
#include "attention/packed.cuh"
#include "attention/pages.cuh"
#include "attention/score.cuh"
#include "ptx/cluster.cuh"
#include "ptx/control.cuh"
#include "tile/resources.cuh"
#include "tile/ring.cuh"

namespace coda {

// The first row in q of an item's queries.
template <bool packed> struct FirstQuery {
    static constexpr i32 query = 0;
};
template <> struct FirstQuery<true> {
    i32 query;
};

template <class Config> struct SplitItems {
    using Element = typename Config::T;
    static constexpr i32 bn = Config::bn, stages = Config::stages, cluster = Config::cluster;
    static constexpr bool walks = Config::walks;
    static constexpr i32 warps = 8, producer = walks ? warps : 0, merger = walks ? warps + 1 : 0;
    static constexpr i32 threads = 32 * (walks ? warps + 2 : warps);
    static constexpr i32 share = bn / warps, tiles = share / 8; // of a warp: keys in a block; their products
    static constexpr bool alone = Config::alone;                // each warp asks for its own keys
    static constexpr i32 askers = alone ? warps : 1, asked = bn / askers; // warps; keys of one, in a block
    static constexpr i32 rows = Config::rows, halves = rows > 8 ? 2 : 1; // of 8 rows
    static constexpr i32 chunks = (Config::head_dim + 63) / 64; // of 64 columns: 128 bytes, a swizzled row
    static constexpr i32 columns = 64 * chunks, octets = 8 * chunks;
    static constexpr bool narrow = Config::narrow;
    static constexpr i32 boxes = narrow ? 1 : chunks, wide = narrow ? 128 : 64; // of a tile; their columns
    static constexpr bool whole = Config::whole_rows;                // one copy brings all chunks of its keys
    using Factor = typename Choice<narrow, f16, Element>::Type;      // of products
    static constexpr i32 slice = columns / cluster;                  // of the columns, that a rank merges
    static constexpr i32 parts = 8, held = parts / cluster;          // of an item's keys; a block's
    static constexpr i32 levels = held == 4 ? 2 : held == 2 ? 1 : 0; // of the tree that a block joins
    static constexpr i32 kv_heads = Config::heads / Config::group;
    static constexpr float scale = Score<Config>::exponent;
    static_assert(rows == Config::group || !Config::single);
    static_assert(!Config::ranges && rows <= 16 && share % 16 == 0);
    static_assert(cluster * (1 << levels) == parts);
    static_assert(!Config::appends || (Config::early && !walks));
    static_assert(!alone || !walks);
    static_assert(narrow || (!Config::k_scales && !Config::v_scales));

    // Parts whose states stay until they are joined at one time: as many as small states leave memory for.
    static constexpr i32 kept = rows <= 4 && walks ? 4 : rows <= 8 ? 2 : 1;
    static constexpr i32 together = kept < held ? kept : held;
    static constexpr i32 climbed = together == 4 ? 2 : together == 2 ? 1 : 0; // levels of the tree

    struct State { // of the rows, over some of the keys; rows begin in different banks
        alignas(16) float out[rows][columns + 8];
        Peak peak[rows];
    };
    // The ring is lent to the states of a block's only part, as nobody fills it again.
    static constexpr bool lends =
        !walks && held == 1 && warps * sizeof(State) <= 2 * boxes * bn * swizzle_row;
    struct alignas(swizzle_atom) Shared { // tiles are what copies bring, [boxes] of rows of 128 bytes each
        u8 ring[stages][boxes * bn * swizzle_row];
        State of_warp[together][lends ? 1 : warps];
        State of_left[levels > climbed ? levels - climbed : 1]; // what waits for its sibling, at each level
        Inboxes<Config, rows, columns> inboxes;
        u64 full[stages][askers], empty[stages];
        u64 warps_read; // of_warp is free
    };
    static constexpr i32 shared_bytes = sizeof(Shared);

    using Cursor = RingCursor<stages>;

    // One sequence and one key head; packed, so many of the sequence's queries as the rows take.
    struct Item : FirstQuery<Config::starts> {
        i32 batch, head;
        Visible<Config> see;
        KeyBlocks keys;

        DEV Item(i32 i, const AttentionInputs &in)
            : batch(i / kv_heads), head(i % kv_heads), see(in, batch),
              keys(key_blocks<Config>(see, 0, see.rows() - 1))
        {
        }
        DEV Item(i32 i, const AttentionInputs &in, const PackedTile<Config> &tile)
            : FirstQuery<true>{tile.query}, batch(tile.batch), head(i % kv_heads), see(in, tile),
              keys(key_blocks<Config>(see, tile.query, last()))
        {
        }
        // The block of keys with which one of this rank's parts begins, and at `held` where the last ends.
        DEV i32 begin(i32 part) const
        {
            const i32 all = keys.end - keys.first;
            return keys.first + all * ((i32)ptx::cluster_rank() * held + part) / parts;
        }
        DEV bool any(i32 part, i32 end) const { return begin(part) < begin(end); }
        // Some query sees a key from `first_seen` on, below `end_seen`.
        DEV i32 first_seen() const { return see.of(this->query).first; }
        DEV i32 end_seen() const { return see.of(last()).end; }
        // Its last query; of the rows, how many there are.
        DEV i32 last() const
        {
            if constexpr (Config::starts) return min(this->query + rows / Config::group, see.rows()) - 1;
            else return see.rows() - 1;
        }
        DEV i32 live() const { return Config::group * (last() + 1 - this->query); }
        // Row r is query r / group of head r % group of the group.
        DEV i32 query_of(i32 row) const { return this->query + row / Config::group; }
        DEV i32 head_of(i32 row) const { return head * Config::group + row % Config::group; }
    };
    template <class Block> DEV static i32 first_item(const Block &mine) { return mine.index() / cluster; }
    template <class Block> DEV static i32 clusters(const Block &mine) { return mine.count() / cluster; }
    DEV static i32 items(const AttentionInputs &in) { return in.extents.batch * kv_heads; }

    // A warp's walk over the items of its cluster.
    template <bool packed = Config::starts, class = void> struct Walk {
        i32 i; // the first item, at first
        DEV bool there(const AttentionInputs &in) { return i < items(in); }
        DEV Item item(const AttentionInputs &in) const { return Item(i, in); }
        template <class Block> DEV void next(const Block &mine) { i += clusters(mine); }
    };
    template <class None> struct Walk<true, None> {
        i32 i; // the first item, at first
        PackedTiles<Config> tiles;
        PackedTile<Config> tile;
        DEV bool there(const AttentionInputs &in) { return tiles.find(in, i / kv_heads, tile); }
        DEV Item item(const AttentionInputs &in) const { return Item(i, in, tile); }
        template <class Block> DEV void next(const Block &mine) { i += clusters(mine); }
    };

    Shared &s;
    const i32 warp, lane;

    DEV explicit SplitItems(Shared &shared)
        : s(shared), warp(ptx::uniform(threadIdx.x / 32)), lane(threadIdx.x % 32)
    {
    }
    DEV static u32 address(const void *p) { return ptx::shared_address(p); }
    // The states of all warps over a part.
    DEV State *states(i32 i) const { return lends ? reinterpret_cast<State *>(s.ring) : s.of_warp[i]; }

    // What this warp waits for in a slot.
    DEV u32 full(i32 slot) const { return address(&s.full[slot][alone ? warp : 0]); }

    using Copies = KeyCopies<Config, asked>;
    using Pages = KeyWalk<Config, asked, askers>;
    // The first row, in a tile, of what this warp asks for; and which of such tiles that is.
    DEV i32 first_asked() const { return alone ? share * warp : 0; }
    DEV i32 tile_of(i32 block) const { return alone ? block * warps + warp : block; }
    // Where a chunk of a row lies in its tile.
    DEV static i32 place(i32 row, i32 chunk)
    {
        constexpr i32 box = Copies::box;
        if (boxes == 1) return row * swizzle_row;
        if (box == bn) return chunk * (bn * swizzle_row) + row * swizzle_row;
        return (u32)row / box * (boxes * box * swizzle_row) + (chunk * box + (u32)row % box) * swizzle_row;
    }
    // How much further row `row` of a warp's share lies than right behind its first one.
    DEV static i32 beyond(i32 row)
    {
        constexpr i32 box = Copies::box;
        return boxes == 1 || box >= share ? 0 : row / box * ((boxes - 1) * box * swizzle_row);
    }
    // The address in a tile of the ring of 16 bytes, eight columns or sixteen, of a row.
    DEV static u32 piece(u32 tile, i32 row, i32 octet)
    {
        return tile + place(row, octet / 8) + (octet % 8 ^ row % 8) * 16;
    }
};

} // namespace coda
