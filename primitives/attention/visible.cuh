// visible.cuh -- which keys a query sees: a range for each query.
//
// Query i sits at position p = i + shift and sees the keys j with
//     first(i) = max(0, p - window + 1)  <=  j  <  min(keys, p + ahead + 1) = end(i)
// where a window of 0 has no left limit, only a limited query has the right one (ahead is 0 under a causal
// mask), and keys is the sequence's length. The shift is a number, or, counted from the length, keys - tq:
// then queries with p < 0 are no rows of the sequence and see nothing. Both ends never decrease with i.
//
// Packed queries (packed.cuh) go by their row in q, of which the sequence has those from `first` below
// `end`: the shift counts from one of these, and takes the place of tq.
//
// With ranges, a query sees of these only the keys from ranges[i][0] on, below ranges[i][1]: packed
// documents, prefixes, chunks. Their ends come in any order, so a warp looks at those of all queries of a
// tile.
#pragma once
#include "attention/extents.cuh"
#include "attention/indices.cuh"
#include "tile/block.cuh"

namespace coda {

DEV float unseen() { return bits_float(0xff800000u); } // the score of a key that is not seen: -inf

// Keys from `first` below `end`.
struct KeyRange {
    i32 first, end;
    DEV bool empty() const { return end <= first; }
};

DEV i32 warp_min(i32 x)
{
#pragma unroll
    for (i32 d = 1; d < 32; d *= 2) x = min(x, __shfl_xor_sync(~0u, x, d));
    return x;
}
DEV i32 warp_max(i32 x) { return -warp_min(-x); }

// What attention has beside q, k, v and its result; of those that the Config does not name none is there.
struct AttentionInputs {
    Indices lengths;                // [batch]
    Indices ranges;                 // [batch][tq][2]
    const float *slopes, *sinks;    // [heads]
    Indices table;                  // [batch][tk / page]
    float *lse;                     // [batch][heads][tq], which is written
    const float *k_scale, *v_scale; // [kv_heads], or one: what keys and values are multiplied by
    Indices starts;                 // [batch + 1]: packed queries'
    const AttentionExtents &extents;
    const void *bias = nullptr; // bias.cuh
    const AttentionBias *bias_strides = nullptr;
    u8 *parts = nullptr; // of tiles: tile_parts.cuh
};

// Queries of each sequence; packed, of all.
template <class Config> DEV i32 queries(const AttentionExtents &extents)
{
    return Config::single ? 1 : extents.tq;
}

template <class Config> DEV float key_scale(const AttentionInputs &in, i32 kv_head)
{
    return Config::k_scales ? in.k_scale[kv_head * Config::k_scale_stride] : 1.0f;
}
template <class Config> DEV float value_scale(const AttentionInputs &in, i32 kv_head)
{
    return Config::v_scales ? in.v_scale[kv_head * Config::v_scale_stride] : 1.0f;
}

// For packed queries the row whose place among the keys is known, and where the sequence's rows end.
template <bool packed> struct Packed {};
template <> struct Packed<true> {
    i32 origin, end;
};
template <class Config> struct PackedTile;

template <class Config> struct Visible : Packed<Config::starts> {
    const AttentionExtents &extents;
    i32 keys;
    Indices ranges; // of this sequence

    // A sequence's length counts whatever the caller stored there.
    DEV Visible(const AttentionInputs &in, i32 batch)
        : extents(in.extents),
          keys(extents.tk),
          ranges(in.ranges + (Config::ranges ? batch * extents.ranges_batch : 0))
    {
        if (Config::lengths) keys = max(0, min(in.lengths[batch * Config::lengths_stride], extents.tk));
    }

    DEV Visible(const AttentionInputs &in, const PackedTile<Config> &tile)
        : Packed<true>{Config::from_start ? tile.first : tile.end, tile.end},
          extents(in.extents),
          keys(tile.none(extents) ? 0 : extents.tk),
          ranges(in.ranges)
    {
        if (Config::lengths && !tile.none(extents))
            keys = max(0, min(in.lengths[tile.batch * Config::lengths_stride], extents.tk));
    }

    DEV i32 shift() const
    {
        if constexpr (Config::starts) return (Config::from_length ? keys : extents.shift) - this->origin;
        else return Config::from_length ? keys - queries<Config>(extents) : extents.shift;
    }
    // Queries are rows below this.
    DEV i32 rows() const
    {
        if constexpr (Config::starts) return this->end;
        else return queries<Config>(extents);
    }
    DEV KeyRange of(i32 query) const
    {
        KeyRange r = {Config::window ? max(0, query + (shift() - Config::window + 1)) : 0, keys};
        if (Config::limited) r.end = max(0, min(keys, query + (shift() + Config::ahead + 1)));
        if (Config::from_length && (!Config::limited || Config::ahead) && query + shift() < 0) r.end = 0;
        if (Config::ranges) {
            const Indices own = ranges + min(query, extents.tq - 1) * Config::ranges_time;
            r.first = max(r.first, own[0]), r.end = min(r.end, own[Config::ranges_end]);
        }
        return r;
    }
    // Such a query's result is 0.
    DEV bool none(i32 query) const { return of(query).empty(); }
    // Whether one may share a tile with queries that see keys: its weights are 0, but 0 times NaN is NaN.
    static constexpr bool mixed = Config::window || Config::from_length || Config::ranges || Config::blind ||
                                  (Config::limited && Config::starts);

    // What some query of `from` to `last` sees lies in this; with ranges, for all lanes of a warp together.
    DEV KeyRange some(i32 from, i32 last) const
    {
        if (!Config::ranges) return {of(from).first, of(last).end};
        KeyRange all = {extents.tk, 0};
#pragma unroll 1
        for (i32 i = from + threadIdx.x % 32; i <= last; i += 32) {
            const KeyRange r = of(i);
            if (!r.empty()) all.first = min(all.first, r.first), all.end = max(all.end, r.end);
        }
        return {warp_min(all.first), warp_max(all.end)};
    }
    // All queries of `from` to `last` see what lies in this; likewise.
    DEV KeyRange common(i32 from, i32 last) const
    {
        if (!Config::ranges) return {of(last).first, of(from).end};
        KeyRange all = {0, extents.tk};
#pragma unroll 1
        for (i32 i = from + threadIdx.x % 32; i <= last; i += 32) {
            const KeyRange r = of(i);
            all.first = max(all.first, r.first), all.end = min(all.end, r.end);
        }
        return {warp_max(all.first), warp_min(all.end)};
    }
};

// The same of a thread that asks of two rows, `query` and 8 below: their ranges are loaded once, at first.
template <class Config> struct VisibleRows : Visible<Config> {
    i32 query;
    KeyRange row[2];

    DEV VisibleRows(const AttentionInputs &in, i32 batch, i32 first)
        : Visible<Config>(in, batch), query(first)
    {
        for (i32 r = 0; r < 2 && Config::ranges; r++) row[r] = Visible<Config>::of(first + 8 * r);
    }
    DEV KeyRange of(i32 q) const
    {
        if constexpr (Config::ranges) return row[q != query];
        else return Visible<Config>::of(q);
    }
    DEV bool none(i32 q) const { return of(q).empty(); }
};

// Blocks of `bn` keys, from `first` below `end`, that queries `from` to `last` need.
struct KeyBlocks {
    i32 first, end;
};

template <class Config> DEV KeyBlocks key_blocks(const Visible<Config> &see, i32 from, i32 last)
{
    const KeyRange r = see.some(from, last);
    KeyBlocks b = {r.first / Config::bn, (r.end + Config::bn - 1) / Config::bn};
    if (b.end < b.first) b.end = b.first;
    return b;
}

} // namespace coda
