// tile_walk.cuh -- the order in which the blocks of a persistent attention kernel take their tiles.
//
// A tile is bm queries of one head. Heads are walked in bands, chosen so that the keys and values of a band
// stay in L2; within a band all heads take the same queries at a time. Under a causal mask the last queries
// are the longest tiles, so bands take turns in going down and going up, which leaves no jump between
// them, and the last one goes down. Round r gives block b the tile r * grid + b, and in odd rounds the one
// from the other end: whoever had the longest tile of a round gets the shortest of the next. The blocks of a
// cluster have the same tile. Packed queries have other tiles, and a walk of their own: packed.cuh.
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
        if (tile >= extents.blocks * extents.streams) return false;
        i32 band = extents.whole.quotient(tile), in = tile - band * (i32)extents.whole.number;
        u32 width = min(extents.band, extents.streams - band * extents.band);
        u32 stream = band * extents.band + in % width;
        batch = stream / Config::heads;
        head = stream % Config::heads;
        bool up = (extents.bands - band) % 2 == 0;
        query = (up ? in / width : extents.blocks - 1 - in / width) * Config::bm;
        return true;
    }
};

} // namespace coda
