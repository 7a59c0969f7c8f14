// pages.cuh -- where the keys of a sequence lie: one behind the other, or in pages of a pool.
//
// With pages, key j of sequence b is row table[b][j / page] * page + j % page of the pool. A page that the
// pool does not have reads as zeros, whatever the table says of keys past the sequence's length.
#pragma once
#include "attention/visible.cuh"

namespace coda {

template <class Config> DEV i32 pool_row(const AttentionInputs &in, i64 batch, i32 key)
{
    const i32 page = key / Config::page;
    const u32 slots = in.extents.slots;
    u32 at = page < (i32)((u32)in.extents.tk / Config::page)
                 ? in.table[batch * in.extents.table_batch + page * Config::table_page]
                 : slots;
    return at < slots / Config::page ? at * Config::page + key % Config::page : slots;
}

// The copies that bring a tile of `rows` keys. Of keys in pages each lane of a warp has a copy, so that the
// table is read for all of them at once, and before the tile's slot is free; of others its lane 0 has the
// only one.
template <class Config, i32 rows> struct KeyCopies {
    static constexpr i32 box = Config::page ? Config::box : rows, count = rows / box;
    static constexpr i32 lanes = Config::page ? 32 : 1; // that take part
    static_assert(rows % box == 0 && count <= 32);

    i32 at; // the tile's number in its sequence; of pages: this lane's first row in the pool

    DEV explicit KeyCopies(i32 at) : at(at) {}
    DEV KeyCopies(const AttentionInputs &in, i32 sequence, i32 tile) : at(tile)
    {
        if constexpr (Config::page != 0)
            at = pool_row<Config>(in, sequence, tile * rows + min(lane(), count - 1) * box);
    }
    DEV static i32 lane() { return lanes > 1 ? threadIdx.x % 32 : 0; }
    // The first of the `box` rows that a lane's copy brings, of all sequences' or of the pool's.
    DEV i32 slot(const AttentionInputs &in, i32 sequence) const
    {
        return Config::page ? at : sequence * in.extents.tk + at * rows;
    }
    // Calls load(row of the tile, time, batch).
    template <class Load> DEV void run(i32 sequence, Load load) const
    {
        if constexpr (Config::page == 0) load(0, at * rows, sequence);
        else if (lane() < count) load(lane() * box, at % Config::page, at / Config::page);
    }
};

// The copies of every `step`th tile, one after the other, by a warp. Of keys in pages it reads the table for
// as many tiles as it has lanes for, and for as many behind these, so that a ring is filled at the price of
// one read.
template <class Config, i32 rows, i32 step = 1> struct KeyWalk {
    using Copies = KeyCopies<Config, rows>;
    static constexpr i32 tiles = 32 / Copies::count, turn = tiles * step;
    i32 first, rows_now, rows_later; // of this lane, in the pool: of the tiles from `first` on, and the next

    DEV KeyWalk(const AttentionInputs &in, i32 sequence, i32 tile) : first(tile)
    {
        rows_now = read(in, sequence, tile), rows_later = read(in, sequence, tile + turn);
    }
    DEV static i32 read(const AttentionInputs &in, i32 sequence, i32 tile)
    {
        if constexpr (Config::page == 0) return 0;
        const i32 ahead = Copies::lane() / Copies::count * step, copy = Copies::lane() % Copies::count;
        return pool_row<Config>(in, sequence, (tile + ahead) * rows + copy * Copies::box);
    }
    // Tiles are asked for in their order.
    DEV Copies of(const AttentionInputs &in, i32 sequence, i32 tile)
    {
        if constexpr (Config::page == 0) return Copies(tile);
        if (tile - first == turn) {
            first = tile;
            rows_now = rows_later, rows_later = read(in, sequence, tile + turn);
        }
        const i32 lane = (tile - first) / step * Copies::count + Copies::lane() % Copies::count;
        return Copies(__shfl_sync(~0u, rows_now, lane));
    }
};

} // namespace coda
