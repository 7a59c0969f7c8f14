// split_steps.cuh -- what a warp of attention_split_sm90.cuh does with its keys: products by mma, and the
// softmax between them.
#pragma once
#include "attention/bias.cuh"
#include "attention/narrow.cuh"
#include "attention/online_softmax.cuh"
#include "attention/split_items.cuh"
#include "ptx/barrier.cuh"
#include "ptx/matrix.cuh"

namespace coda {

template <class Config> struct SplitSteps : SplitItems<Config> {
    using Items = SplitItems<Config>;
    using Items::address, Items::place, Items::beyond, Items::piece, Items::full, Items::alone;
    using Items::bn, Items::share, Items::tiles, Items::rows, Items::halves, Items::chunks;
    using Items::Items;
    using Items::octets, Items::narrow, Items::boxes, Items::scale, Items::s, Items::warp, Items::lane;
    using typename Items::Element, typename Items::Factor, typename Items::Cursor, typename Items::Item;

    // Fragments of 16 columns, A of a product. Up to 8 rows, the next 16 columns are in the place of the rows
    // that do not exist: the first product is right in its upper rows, the second in its lower ones.
    static constexpr i32 fragments = 2 * chunks * halves;
    using Queries = u32[fragments][4];
    using Scores = float[4 * tiles]; // fragments of eight keys, then of eight columns
    using Out = float[octets][4];

    DEV void release(Cursor &at) const
    {
        __syncwarp();
        if (!alone && lane == 0) ptx::mbarrier_arrive(address(&s.empty[at.slot]));
        at.next();
    }

    DEV u32 load_pair(const Element *q, const AttentionStrides &stride, const Item &item, i32 row,
                      i32 column) const
    {
        if (row >= item.live() || column >= Config::head_dim) return 0;
        return *reinterpret_cast<const u32 *>(q + item.query_of(row) * stride.time +
                                              row % Config::group * stride.head + column);
    }
    DEV void load_queries(Queries &x, const Element *q, const AttentionStrides &stride,
                          const Item &item) const
    {
        q += (Config::starts ? 0 : item.batch) * stride.batch + item.head * Config::group * stride.head;
#pragma unroll
        for (i32 i = 0; i < fragments; i++)
#pragma unroll
            for (i32 j = 0; j < 4; j++) {
                const i32 lower = j % 2, row = lane / 4 + (halves > 1 ? 8 * lower : 0);
                const i32 column = halves > 1 ? 16 * i : 32 * i + 16 * lower;
                const i32 at = narrow ? j / 2 * 2 + lane % 4 * 4 : j / 2 * 8 + lane % 4 * 2;
                x[i][j] = load_pair(q, stride, item, row, column + at);
            }
    }

    // S = Q K^T of this warp's keys, eight in a product.
    DEV void multiply_keys(Scores &score, const Queries &q, u32 tile) const
    {
        const i32 row = share * warp + lane % 8 + lane / 16 * 8, half = lane / 8 % 2;
        if constexpr (narrow) {
            multiply_narrow_keys<halves>(
                score, q, [&](i32 octet, i32 unit) { return piece(tile, row + 8 * octet, unit + half); });
            return;
        }
        float sums[2][tiles][4] = {};
#pragma unroll
        for (i32 i = 0; i < 4 * chunks; i++)
#pragma unroll
            for (i32 j = 0; j < tiles; j += 2) {
                const i32 lower = halves > 1 ? 0 : i % 2, at = halves > 1 ? i : i / 2;
                u32 k[4];
                ptx::ldmatrix(piece(tile, row + 8 * j, 2 * i + half), k);
                ptx::mma<Factor>(sums[lower][j], q[at], k[0], k[1]);
                ptx::mma<Factor>(sums[lower][j + 1], q[at], k[2], k[3]);
            }
#pragma unroll
        for (i32 j = 0; j < 4 * tiles; j++)
            score[j] = sums[0][j / 4][j % 4] + (halves > 1 || j % 4 > 1 ? 0.0f : sums[1][j / 4][j % 4 + 2]);
    }
    // O += P V of this warp's keys, sixteen in a product.
    DEV void multiply_values(Out &out, const Scores &score, u32 tile) const
    {
        const i32 row = share * warp + lane % 16;
#pragma unroll
        for (i32 j = 0; j < tiles / 2; j++) {
            const float *x = score + 8 * j;
            const u32 weight[4] = {pack2<Factor>(x[0], x[1]), halves > 1 ? pack2<Factor>(x[2], x[3]) : 0,
                                   pack2<Factor>(x[4], x[5]), halves > 1 ? pack2<Factor>(x[6], x[7]) : 0};
            if constexpr (narrow)
                multiply_narrow_values(out, weight,
                                       [&](i32 unit) { return piece(tile, row + 16 * j, unit + lane / 16); });
#pragma unroll
            for (i32 i = 0; i < (narrow ? 0 : octets); i += 2) {
                u32 v[4];
                ptx::ldmatrix_transposed(piece(tile, row + 16 * j, i + lane / 16), v);
                ptx::mma<Factor>(out[i], weight, v[0], v[1]);
                ptx::mma<Factor>(out[i + 1], weight, v[2], v[3]);
            }
        }
    }

    // How this lane's rows score.
    struct Rows {
        Score<Config> upper, lower;
        BiasRow<Config> bias[2];
        float times[halves]; // of keys in 8 bits: what their products are multiplied by
        DEV Rows(const AttentionInputs &in, const Item &item, i32 row)
            : upper(in, item.head_of(row)),
              lower(in, item.head_of(row + 8)), bias{{in, item.batch, item.head_of(row),
                                                      min(item.query_of(row), item.last())},
                                                     {in, item.batch, item.head_of(row + 8),
                                                      min(item.query_of(row + 8), item.last())}}
        {
        }
    };
    // Products become scores; `key` is the warp's first one.
    DEV void turn(Scores &score, const Rows &as, const Item &item, i32 key) const
    {
        const i32 first = key + lane % 4 * 2, end = item.see.extents.tk - first;
        const BiasRow<Config> row_bias[2] = {as.bias[0].from(first), as.bias[1].from(first)};
#pragma unroll
        for (i32 i = 0; i < 4 * tiles; i += 2) {
            if (halves == 1 && i & 2) continue;
            const i32 row = lane / 4 + 8 * (i >> 1 & 1), at = key + i / 4 * 8 + lane % 4 * 2;
            const i32 position = item.query_of(row) + item.see.shift();
            const Score<Config> &of = i & 2 ? as.lower : as.upper;
            const Pair bias = row_bias[i >> 1 & 1].pair(i / 4 * 8, end);
            score[i] = of.of(score[i], position - at, at, bias.a);
            score[i + 1] = of.of(score[i + 1], position - at - 1, at + 1, bias.b);
        }
    }
    // Scores of keys that a row's query does not see; `key` is the warp's first one.
    DEV void hide(Scores &score, const Item &item, i32 key) const
    {
#pragma unroll
        for (i32 r = 0; r < halves; r++) {
            const i32 query = min(item.query_of(lane / 4 + 8 * r), item.last());
            const KeyRange seen = item.see.of(query);
#pragma unroll
            for (i32 i = 0; i < 2 * tiles; i++) {
                const i32 at = key + i / 2 * 8 + lane % 4 * 2 + i % 2;
                if (at < seen.first || at >= seen.end) score[i / 2 * 4 + 2 * r + i % 2] = unseen();
            }
        }
    }
    // Zeroes this warp's values of keys that no query of the item sees.
    DEV void clear_values(const Item &item, i32 key, i32 slot) const
    {
        const i32 first = item.first_seen() - key, end = item.end_seen() - key;
        if (first <= 0 && end >= share) return;
        for (i32 c = 0; c < boxes; c++) {
            u8 *const rows = s.ring[slot] + place(share * warp, c);
            for (i32 e = lane; e < share * 8; e += 32)
                if (e / 8 < first || e / 8 >= end)
                    *reinterpret_cast<uint4 *>(rows + beyond(e / 8) + e * 16) = uint4();
        }
        ptx::fence_async_shared();
        __syncwarp();
    }

    DEV void weigh(Scores &score, OnlineSoftmax &softmax, const Rows &as, const Item &item, i32 key,
                   Out &out) const
    {
        float factor[halves];
#pragma unroll
        for (i32 i = 0; i < (narrow ? 4 * tiles : 0); i++) score[i] *= as.times[halves > 1 ? i >> 1 & 1 : 0];
        if (!Score<Config>::plain || Score<Config>::turned) turn(score, as, item, key);
        const KeyRange common = item.see.common(item.query, item.last());
        if (key + share > common.end || key < common.first) hide(score, item, key);
        softmax.template step<halves>(score, scale, factor);
#pragma unroll
        for (i32 i = 0; i < octets; i++)
#pragma unroll
            for (i32 j = 0; j < 2 * halves; j++) out[i][j] *= factor[j / 2];
    }
    template <class Ask>
    DEV void attend(Cursor &at, const Queries &q, OnlineSoftmax &softmax, const Rows &as, const Item &item,
                    i32 block, Out &out, Ask ask) const
    {
        const i32 key = block * bn + share * warp;
        const bool seen = key < item.end_seen() && key + share > item.first_seen();
        Scores score = {};
        ptx::mbarrier_wait(full(at.slot), at.parity);
        if (seen) multiply_keys(score, q, address(s.ring[at.slot]));
        release(at);
        ask();
        if (seen) weigh(score, softmax, as, item, key, out);
        ptx::mbarrier_wait(full(at.slot), at.parity);
        if (seen) {
            clear_values(item, key, at.slot);
            multiply_values(out, score, address(s.ring[at.slot]));
        }
        release(at);
        ask();
    }
    // Queries of keys in 8 bits.
    DEV void narrow_item(Queries &x, Rows &as, const Item &item, const AttentionInputs &in) const
    {
        if constexpr (narrow) {
            for (i32 r = 0; r < halves; r++) as.times[r] = key_scale<Config>(in, item.head);
            if constexpr (Config::bf16_queries) narrow_queries(x, as.times);
        }
    }
};

} // namespace coda
