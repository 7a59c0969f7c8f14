// packed.cuh -- the tiles of queries that lie packed: those of each sequence behind those of the one before.
//
// Rows starts[b] below starts[b + 1] of q are the queries of sequence b. A start counts as 0 if it is
// negative, as tq if it is more, and as an earlier one if that is more, so that rows are cut into batch + 2
// pieces in order: those before the first sequence, each sequence's, and those behind the last. Each piece
// has tiles of bm rows of its own, its last one perhaps shorter: no tile has queries of two. Rows of no
// sequence have tiles, too, since their results are zeros, which somebody has to write.
//
// A warp looks at the ends of 32 pieces at a time.
#pragma once
#include "attention/tile_walk.cuh"

namespace coda {

// The largest of the lanes up to this one. All lanes of a warp together.
DEV i32 warp_running_max(i32 x)
{
    const i32 lane = threadIdx.x % 32;
#pragma unroll
    for (i32 d = 1; d < 32; d *= 2) x = max(x, __shfl_sync(~0u, x, max(lane - d, 0)));
    return x;
}
DEV i32 warp_running_sum(i32 x)
{
    const i32 lane = threadIdx.x % 32;
#pragma unroll
    for (i32 d = 1; d < 32; d *= 2) {
        const i32 y = __shfl_sync(~0u, x, max(lane - d, 0));
        x += lane < d ? 0 : y;
    }
    return x;
}

// A tile: its sequence, whose queries are the rows from `first` below `end`, and its own first row.
template <class Config> struct PackedTile {
    i32 batch; // -1 or past the last: rows of no sequence
    i32 first, end, query;

    DEV bool none(const AttentionExtents &extents) const { return (u32)batch >= (u32)extents.batch; }
};

// Finds tiles by their number, which must not become less from one call to the next.
template <class Config> struct PackedTiles {
    static constexpr i32 bm = Config::bm;

    i32 piece = 0, tiles = 0, row = 0; // the first piece of these 32; tiles and rows before it

    // All lanes of a warp together; false if there is no such tile.
    DEV bool find(const AttentionInputs &in, i32 tile, PackedTile<Config> &out)
    {
#pragma unroll 1
        for (; piece < in.extents.batch + 2; piece += 32) {
            const i32 at = threadIdx.x % 32, own = piece + at;
            i32 end = in.extents.tq;
            if (own <= in.extents.batch) end = min(in.starts[own * Config::starts_stride], end);
            end = warp_running_max(max(end, row));
            const i32 before = __shfl_sync(~0u, end, max(at - 1, 0)), first = at ? before : row;
            const i32 count = (end - first + bm - 1) / bm, past = tiles + warp_running_sum(count);
            const u32 found = __ballot_sync(~0u, past > tile);
            if (found) {
                const i32 lane = __ffs(found) - 1;
                out.batch = piece + lane - 1;
                out.first = __shfl_sync(~0u, first, lane);
                out.end = __shfl_sync(~0u, end, lane);
                out.query = out.first + (tile - __shfl_sync(~0u, past - count, lane)) * bm;
                return true;
            }
            tiles = __shfl_sync(~0u, past, 31);
            row = __shfl_sync(~0u, end, 31);
        }
        return false;
    }
};

// The walk of a persistent kernel over them: all heads of a tile's rows, then the next tile's.
template <class Config> struct TileWalk<Config, true> : PackedTile<Config> {
    static_assert(Config::cluster == 1);

    const AttentionInputs &in;
    PackedTiles<Config> packed;
    i32 round = 0;
    i32 head;

    DEV explicit TileWalk(const AttentionInputs &in) : in(in) {}
    template <class Block> DEV bool next(const Block &mine)
    {
        const i32 place = round % 2 ? mine.count() - 1 - mine.index() : mine.index();
        const i32 tile = round++ * mine.count() + place;
        head = tile % Config::heads;
        return packed.find(in, tile / Config::heads, *this);
    }
};

} // namespace coda
