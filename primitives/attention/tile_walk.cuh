// tile_walk.cuh -- the order in which the blocks of a persistent attention kernel take their tiles.
//
// A tile is bm queries of one head. Heads are walked in bands, chosen so that the keys and values of a band
// stay in L2; within a band all heads take the same queries at a time. Under a causal mask the last queries
// are the longest tiles, so bands take turns in going down and going up, which leaves no jump between
// them, and the last one goes down. Round r gives block b the tile r * grid + b, and in odd rounds the one
// from the other end: whoever had the longest tile of a round gets the shortest of the next. The blocks of a
// cluster have the same tile. Packed queries have other tiles, and a walk of their own: packed.cuh.
//
// Behind all these may come tiles of a head's last queries, 64 each, which take part of a whole tile's time:
// where a last round of whole ones would leave most blocks idle, each has one of them.
//
// Or all blocks share the keys of the last round's tiles (Config::shares): the blocks of keys of all of
// these, one tile's behind the other's, are dealt to them evenly, as a product's slots of K are
// (tile/pieces.cuh). So one has parts of two tiles at most. Who has a tile's first blocks of keys owns it,
// and waits in the end for those of lower numbers, which have the others: tile_parts.cuh.
#pragma once
#include "attention/visible.cuh"

namespace coda {

struct KeyDeal {
    i32 whole, blocks, total, walkers; // tiles that nobody shares; blocks of keys of a tile, of all others

    DEV KeyDeal(const AttentionExtents &e, i32 bn, i32 walkers)
        : whole(e.blocks * e.streams / walkers * walkers), blocks((e.tk + bn - 1) / bn),
          total((e.blocks * e.streams - whole) * blocks), walkers(walkers)
    {
    }
    DEV i32 begin(i32 place) const { return place * total / walkers; }
    // Of fewer blocks of keys than places some places have none.
    DEV bool has_some(i32 place) const { return begin(place) < begin(place + 1); }
    template <class Block> DEV static i32 place(const Block &mine) { return mine.count() - 1 - mine.index(); }
    // The first block of keys of a place's first part, or its second one, and the end.
    DEV KeyBlocks part(i32 place, i32 piece) const
    {
        const i32 first = begin(place), end = begin(place + 1), middle = (first / blocks + 1) * blocks;
        if (piece == 0) return {first, min(middle, end)};
        return {middle, piece == 1 ? end : middle};
    }
};

template <class Config, bool packed = Config::starts> struct TileWalk {
    const AttentionExtents &extents;
    i32 round = 0;
    i32 batch, head, query;
    u32 part = whole; // of a tile of the last round: its first block of keys and its end, which one it is
    static constexpr u32 whole = ~0u;
    DEV bool is_part() const { return Config::shares && part != whole; }
    DEV i32 piece() const { return part >> 30; }
    DEV KeyBlocks part_blocks() const { return {(i32)(part & 0x7fff), (i32)(part >> 15 & 0x7fff)}; }

    DEV explicit TileWalk(const AttentionInputs &in) : extents(in.extents) {}
    // Steps to this block's next tile; false when there is none.
    template <class Block> DEV bool next(const Block &mine)
    {
        i32 walkers = mine.count() / Config::cluster, walker = mine.index() / Config::cluster;
        i32 place = round % 2 ? walkers - 1 - walker : walker;
        i32 tile = round++ * walkers + place;
        if constexpr (Config::shares) {
            const KeyDeal deal(extents, Config::bn, walkers);
            if (tile >= deal.whole) {
                const i32 turn = is_part() ? piece() + 1 : 0;
                const KeyBlocks b = deal.part(KeyDeal::place(mine), turn);
                if (b.first >= b.end) return false;
                tile = deal.whole + b.first / deal.blocks;
                part = turn << 30 | (b.end - 1) % deal.blocks + 1 << 15 | b.first % deal.blocks;
            }
        }
        if (tile >= extents.blocks * extents.streams)
            return next_small(tile - extents.blocks * extents.streams);
        i32 band = extents.whole.quotient(tile), in = tile - band * (i32)extents.whole.number;
        u32 width = min(extents.band, extents.streams - band * extents.band);
        u32 stream = band * extents.band + in % width;
        find_head(stream);
        bool up = (extents.bands - band) % 2 == 0;
        query = (up ? in / width : extents.blocks - 1 - in / width) * Config::bm;
        return true;
    }
    DEV bool is_small() const { return query >= extents.blocks * Config::bm; }

    DEV void find_head(u32 stream)
    {
        batch = stream / Config::heads;
        head = stream % Config::heads;
    }
    DEV bool next_small(u32 tile)
    {
        const i32 rest = extents.tq - extents.blocks * Config::bm; // queries behind a head's other tiles
        const u32 small = rest > 0 ? (rest + 63) / 64 : 0;
        if (!Config::smalls || tile >= small * extents.streams) return false;
        find_head(tile / small);
        query = extents.blocks * Config::bm + tile % small * 64;
        return true;
    }
};

} // namespace coda
