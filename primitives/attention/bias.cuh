// bias.cuh -- a tensor that is added to scores: an element for each batch, head, query and key, by strides, 0
// where one is for all.
//
// A Config that has one says `biased`, and the tensor's type Bias; i64 bias_key, its stride from a key to the
// next if that is 0 or 1, else -1: then the launch passes it; and bool bias_pairs: keys lie side by side, and
// those of an even number and the next one where both can be loaded at once. Most Configs say nothing.
#pragma once
#include "attention/visible.cuh"
#include "port/tile.cuh"

namespace coda {

template <bool yes> struct Said {
    typedef void Type;
};

// What is added to the scores of one query of a head.
template <class Config, class = void> struct BiasRow {
    static constexpr bool there = false;
    DEV BiasRow(const AttentionInputs &, i32, i32, i32) {}
    DEV BiasRow from(i32) const { return *this; }
    DEV float of(i32) const { return 0.0f; }
    DEV Pair pair(i32, i32) const { return {0.0f, 0.0f}; }
};
template <class Config> struct BiasRow<Config, typename Said<Config::biased>::Type> {
    static constexpr bool there = true;
    using T = typename Config::Bias;

    const T *row;
    const AttentionBias &stride;

    DEV BiasRow(const T *row, const AttentionBias &stride) : row(row), stride(stride) {}
    // Packed queries are rows of one batch.
    DEV BiasRow(const AttentionInputs &in, i32 batch, i32 head, i32 query)
        : row(static_cast<const T *>(in.bias) + (Config::starts ? 0 : batch * in.bias_strides->batch) +
              head * in.bias_strides->head + query * in.bias_strides->time),
          stride(*in.bias_strides)
    {
    }
    DEV i64 place(i32 key) const { return key * (Config::bias_key < 0 ? stride.key : Config::bias_key); }
    // Keys count from this one.
    DEV BiasRow from(i32 key) const { return BiasRow(row + place(key), stride); }
    DEV float of(i32 key) const { return load(row + place(key)); }
    // The bias of an even key and the next one, of those below `end`.
    DEV Pair pair(i32 key, i32 end) const
    {
        if (Config::bias_pairs) return key < end ? port::load_pair(row + key) : Pair{0.0f, 0.0f};
        return {key < end ? of(key) : 0.0f, key + 1 < end ? of(key + 1) : 0.0f};
    }
};

} // namespace coda
