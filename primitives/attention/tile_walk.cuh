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
#pragma once
#include "attention/visible.cuh"

namespace coda {

template <class Config, bool packed = Config::starts> struct TileWalk {
    const AttentionExtents &extents;
    i32 round = 0;
    i32 batch, head, query;

    DEV explicit TileWalk(const AttentionInputs &in) : extents(in.extents) {}
    // Steps to this block's next tile; false when there is none.
    template <class Block> DEV bool next(const Block &mine)
    {
        i32 walkers = mine.count() / Config::cluster, walker = mine.index() / Config::cluster;
        i32 place = round % 2 ? walkers - 1 - walker : walker;
        i32 tile = round++ * walkers + place;
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
