// grad_walk.cuh -- the order in which the blocks of attention_grad_sm90.cuh take their tiles.
//
// First come tiles of keys, then tiles of queries. Round r of a kind gives block b its tile r * grid + b, and
// in odd rounds the one from the other end, so that whoever had the longest tile of a round gets the
// shortest of the next. Of each kind heads are walked in bands whose walked rows stay in L2, all heads of a
// band at the same rows. Under a causal mask the first keys are seen by most queries and the last queries
// see most keys; bands take turns in walking from the longest tiles to the shortest and back, and the last
// band of a kind ends with the shortest: there queries begin with a round of their own, whose tiles are
// long. Where all tiles of a kind are as long, queries take the rest of the last round of keys.
#pragma once
#include "attention/extents.cuh"

namespace coda {

// Tiles of one kind.
struct GradTiles {
    i32 rows, streams; // tiles of a head; heads of all sequences, of keys or of queries
    i32 bands, band;   // heads in a band
    Divisor whole;     // tiles of a band
};

struct AttentionGradExtents {
    i32 tq, tk, shift; // a query's position less its number
    i32 pitch;         // of the sums of a head: log-sum-exps, and behind them deltas
    GradTiles keys, queries;
};

// kv_heads and heads: of a sequence; bm: rows of a tile; causal: tiles are of different lengths.
template <i32 kv_heads, i32 heads, i32 bm, bool causal> struct GradWalk {
    const AttentionGradExtents &extents;
    i32 round = 0;
    bool of_keys;
    i32 batch, head, row; // a key head and its first key, or a query head and its first query

    DEV explicit GradWalk(const AttentionGradExtents &extents) : extents(extents) {}

    DEV void locate(const GradTiles &t, i32 tile, i32 each, bool backwards)
    {
        const i32 band = t.whole.quotient(tile), in = tile - band * (i32)t.whole.number;
        const i32 rest = t.streams - band * t.band, width = rest < t.band ? rest : t.band;
        const i32 stream = band * t.band + in % width, at = in / width;
        const bool turned = ((t.bands - band) % 2 == 0) != backwards;
        batch = stream / each;
        head = stream % each;
        row = (turned ? t.rows - 1 - at : at) * bm;
    }
    DEV static i32 tiles(const GradTiles &t) { return t.rows * t.streams; }
    DEV bool take(bool keys, i32 tile)
    {
        of_keys = keys;
        if (keys) locate(extents.keys, tile, kv_heads, false);
        else locate(extents.queries, tile, heads, true);
        return true;
    }
    // Steps to this block's next tile; false when there is none.
    template <class Block> DEV bool next(const Block &mine)
    {
        const i32 all = mine.count(), own = mine.index(), keys = tiles(extents.keys);
        const i32 ahead = causal ? (keys + all - 1) / all * all : keys; // tiles in place of those of keys
        for (;;) {
            const i32 first = round * all;
            const bool turned = (round + (causal && first >= ahead)) % 2;
            const i32 tile = first + (turned ? all - 1 - own : own);
            round++;
            if (tile < keys) return take(true, tile);
            if (tile >= ahead) return tile - ahead < tiles(extents.queries) && take(false, tile - ahead);
        }
    }
};

} // namespace coda
