// visible.cuh -- which keys a query sees: a range that moves right with the query.
//
// Query i sits at position p = i + shift and sees the keys j with
//     first(i) = max(0, p - window + 1)  <=  j  <  min(keys, p + 1) = end(i)
// where a window of 0 has no left limit, only causal attention has the right limit p + 1, and keys is
// the sequence's length. The shift is a constant, or, counted from the length, keys - tq: then queries with
// p < 0 are no rows of the sequence and see nothing. Both ends never decrease with i, so a block of queries
// needs the range from the first end of its first query to the second end of its last one.
#pragma once
#include "types.cuh"

namespace coda {

DEV float unseen() { return bits_float(0xff800000u); } // the score of a key that is not seen: -inf

template <class Config> struct Visible {
    i32 keys;

    // `length` is that of the sequence, whatever the caller stored there.
    DEV explicit Visible(i32 length) : keys(max(0, min(length, Config::tk))) {}

    DEV i32 shift() const { return Config::from_length ? keys - Config::tq : Config::shift; }
    DEV i32 first(i32 query) const
    {
        return Config::window ? max(0, query + (shift() - Config::window + 1)) : 0;
    }
    DEV i32 end(i32 query) const
    {
        if (Config::causal) return max(0, min(keys, query + (shift() + 1)));
        return Config::from_length && query + shift() < 0 ? 0 : keys;
    }
    // Such a query's result is 0.
    DEV bool none(i32 query) const { return end(query) <= first(query); }
    // Whether one may share a tile with queries that see keys: its weights are 0, but 0 times NaN is NaN.
    static constexpr bool mixed =
        Config::window || Config::from_length || (Config::causal && Config::shift < 0);
};

// Blocks of `bn` keys, from `first` below `end`, that queries `from` to `last` need.
struct KeyBlocks {
    i32 first, end;
};

template <class Config> DEV KeyBlocks key_blocks(const Visible<Config> &see, i32 from, i32 last)
{
    KeyBlocks b = {see.first(from) / Config::bn, (see.end(last) + Config::bn - 1) / Config::bn};
    if (b.end < b.first) b.end = b.first;
    return b;
}

} // namespace coda
