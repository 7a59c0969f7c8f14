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
    u32 at = page < Config::tk / Config::page
                 ? in.table[batch * Config::table_batch + page * Config::table_page]
                 : Config::slots;
    return at < Config::slots / Config::page ? at * Config::page + key % Config::page : Config::slots;
}

// Calls load(row of the tile, time, batch) for each part of a tile of `rows` keys that one copy brings.
template <class Config, i32 rows, class Load>
DEV void load_keys(const AttentionInputs &in, i32 batch, i32 key, Load load)
{
    if constexpr (Config::page == 0) {
        load(0, key, batch);
    } else {
        constexpr i32 box = Config::box, together = 4; // of the table's entries
#pragma unroll 1
        for (i32 from = 0; from < rows; from += together * box) {
            i32 at[together];
#pragma unroll
            for (i32 i = 0; i < together; i++) at[i] = pool_row<Config>(in, batch, key + from + i * box);
#pragma unroll
            for (i32 i = 0; i < together; i++)
                if (from + i * box < rows) load(from + i * box, at[i], 0);
        }
    }
}

} // namespace coda
