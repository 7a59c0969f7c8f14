// attention_split_sm90.cuh -- attention of few queries to many keys on Hopper: the blocks of a cluster share
// the keys, which stream through shared memory at memory's pace.
//
// An item is one sequence and one key head. The queries of all heads of its group, at most 16, are the rows
// of one mma.sync; of packed queries (packed.cuh) a sequence has an item for every few. An item's keys, in
// blocks of bn, are eight parts, as equal as can be; a block of the cluster has 8 / cluster of them. Of a
// block of keys warp w takes 16, from 16 w on. Clusters walk over the items.
//
//     producer    a warp: of each block of keys the keys, then the values, into a ring of `stages` slots
//     consumers   warps: S = Q K^T, online softmax, O += P V, each with a state of its own; at the end of a
//                 part they merge these in the order of warps, and join them to the parts before
//     merger      a warp: when all blocks of the cluster have sent theirs, it joins them, for some of the
//                 columns
//
// So consumers weigh the next item's keys while an item's blocks wait for each other (inboxes.cuh). Where
// each item has a cluster, warp 0 does what producer and merger do. A block's registers and shared memory
// then leave room on its SM for one of a product ahead or behind, whose weights stream meanwhile. A row's
// bits depend on its own sequence alone, whatever the others hold and however many there are: parts follow
// from the range of keys that the item's queries see, and every sum has a fixed order, which no cluster's
// size changes.
//
// Values that no query of the item sees are zeroed before they are multiplied, since zero times NaN is NaN. A
// NaN among those that one of its queries sees may reach its other queries.
//
// Early: no kernel of the run writes lengths, pages and starts, and of keys and values none but the rows that
// it appends, if any. So the others are asked for before the kernel ahead has ended; only queries wait for
// it, and blocks of keys with such rows (appended.cuh).
//
// Keys and values of 8 bits are multiplied as f16, by queries and weights of f16: narrow.cuh.
//
// Config: as attention_sm90.cuh has it, but for groups; i32 rows (group if there is a single query, else 8 or
// 16, for as many queries as they take), cluster; bool walks (a cluster may have several items), early,
// appends (the run does, and nothing walks), narrow (keys and values are f8e4m3), whole_rows (maps have the
// chunks of a row as their fourth dimension), bf16_queries. Of packed queries also i32 bm = rows / group:
// those of an item.
#pragma once
#include "attention/appended.cuh"
#include "attention/inboxes.cuh"
#include "attention/merge.cuh"
#include "attention/narrow.cuh"
#include "attention/online_softmax.cuh"
#include "attention/packed.cuh"
#include "attention/pages.cuh"
#include "port/tile.cuh"
#include "ptx/barrier.cuh"
#include "ptx/cluster.cuh"
#include "ptx/control.cuh"
#include "ptx/matrix.cuh"
#include "ptx/tma.cuh"
#include "tile/resources.cuh"
#include "tile/ring.cuh"

namespace coda {

// The first row in q of an item's queries.
template <bool packed> struct FirstQuery {
    static constexpr i32 query = 0;
};
template <> struct FirstQuery<true> {
    i32 query;
};

template <class Config> struct AttentionSplit {
    using Element = typename Config::T;
    static constexpr i32 bn = Config::bn, stages = Config::stages, cluster = Config::cluster;
    static constexpr bool walks = Config::walks;
    static constexpr i32 warps = 8, producer = walks ? warps : 0, merger = walks ? warps + 1 : 0;
    static constexpr i32 threads = 32 * (walks ? warps + 2 : warps);
    static constexpr i32 share = bn / warps, tiles = share / 8; // of a warp: keys in a block; their products
    static constexpr i32 rows = Config::rows, halves = rows > 8 ? 2 : 1; // of 8 rows
    static constexpr i32 chunks = (Config::head_dim + 63) / 64; // of 64 columns: 128 bytes, a swizzled row
    static constexpr i32 columns = 64 * chunks, octets = 8 * chunks;
    static constexpr bool narrow = Config::narrow;
    static constexpr i32 boxes = narrow ? 1 : chunks, wide = narrow ? 128 : 64; // of a tile; their columns
    static constexpr bool whole = Config::whole_rows;                // one copy brings all chunks of its keys
    using Factor = typename Choice<narrow, f16, Element>::Type;      // of products
    static constexpr i32 slice = columns / cluster;                  // of the columns, that a rank merges
    static constexpr i32 parts = 8, held = parts / cluster;          // of an item's keys; a block's
    static constexpr i32 levels = held == 4 ? 2 : held == 2 ? 1 : 0; // of the tree that a block joins
    static constexpr i32 kv_heads = Config::heads / Config::group;
    static constexpr float scale = Score<Config>::exponent;
    static_assert(rows == Config::group || !Config::single);
    static_assert(!Config::ranges && rows <= 16 && share % 16 == 0);
    static_assert(cluster * (1 << levels) == parts);
    static_assert(!Config::appends || (Config::early && !walks));
    static_assert(narrow || (!Config::k_scales && !Config::v_scales));

    // Parts whose states stay until they are joined at one time: as many as small states leave memory for.
    static constexpr i32 kept = rows <= 4 && walks ? 4 : rows <= 8 ? 2 : 1;
    static constexpr i32 together = kept < held ? kept : held;
    static constexpr i32 climbed = together == 4 ? 2 : together == 2 ? 1 : 0; // levels of the tree

    struct State { // of the rows, over some of the keys; rows begin in different banks
        alignas(16) float out[rows][columns + 8];
        Peak peak[rows];
    };
    // The ring is lent to the states of a block's only part, as nobody fills it again.
    static constexpr bool lends =
        !walks && held == 1 && warps * sizeof(State) <= 2 * boxes * bn * swizzle_row;
    struct alignas(swizzle_atom) Shared { // tiles are what copies bring, [boxes] of rows of 128 bytes each
        u8 ring[stages][boxes * bn * swizzle_row];
        State of_warp[together][lends ? 1 : warps];
        State of_left[levels > climbed ? levels - climbed : 1]; // what waits for its sibling, at each level
        Inboxes<Config, rows, columns> inboxes;
        u64 full[stages], empty[stages];
        u64 warps_read; // of_warp is free
    };
    static constexpr i32 shared_bytes = sizeof(Shared);

    using Cursor = RingCursor<stages>;

    // One sequence and one key head; packed, so many of the sequence's queries as the rows take.
    struct Item : FirstQuery<Config::starts> {
        i32 batch, head;
        Visible<Config> see;
        KeyBlocks keys;

        DEV Item(i32 i, const AttentionInputs &in)
            : batch(i / kv_heads), head(i % kv_heads), see(in, batch),
              keys(key_blocks<Config>(see, 0, see.rows() - 1))
        {
        }
        DEV Item(i32 i, const AttentionInputs &in, const PackedTile<Config> &tile)
            : FirstQuery<true>{tile.query}, batch(tile.batch), head(i % kv_heads), see(in, tile),
              keys(key_blocks<Config>(see, tile.query, last()))
        {
        }
        // The block of keys with which one of this rank's parts begins, and at `held` where the last ends.
        DEV i32 begin(i32 part) const
        {
            const i32 all = keys.end - keys.first;
            return keys.first + all * ((i32)ptx::cluster_rank() * held + part) / parts;
        }
        DEV bool any(i32 part, i32 end) const { return begin(part) < begin(end); }
        // Some query sees a key from `first_seen` on, below `end_seen`.
        DEV i32 first_seen() const { return see.of(this->query).first; }
        DEV i32 end_seen() const { return see.of(last()).end; }
        // Its last query; of the rows, how many there are.
        DEV i32 last() const
        {
            if constexpr (Config::starts) return min(this->query + rows / Config::group, see.rows()) - 1;
            else return see.rows() - 1;
        }
        DEV i32 live() const { return Config::group * (last() + 1 - this->query); }
        // Row r is query r / group of head r % group of the group.
        DEV i32 query_of(i32 row) const { return this->query + row / Config::group; }
        DEV i32 head_of(i32 row) const { return head * Config::group + row % Config::group; }
    };
    template <class Block> DEV static i32 first_item(const Block &mine) { return mine.index() / cluster; }
    template <class Block> DEV static i32 clusters(const Block &mine) { return mine.count() / cluster; }
    DEV static i32 items(const AttentionInputs &in) { return in.extents.batch * kv_heads; }

    // A warp's walk over the items of its cluster.
    template <bool packed = Config::starts, class = void> struct Walk {
        i32 i; // the first item, at first
        DEV bool there(const AttentionInputs &in) { return i < items(in); }
        DEV Item item(const AttentionInputs &in) const { return Item(i, in); }
        template <class Block> DEV void next(const Block &mine) { i += clusters(mine); }
    };
    template <class None> struct Walk<true, None> {
        i32 i; // the first item, at first
        PackedTiles<Config> tiles;
        PackedTile<Config> tile;
        DEV bool there(const AttentionInputs &in) { return tiles.find(in, i / kv_heads, tile); }
        DEV Item item(const AttentionInputs &in) const { return Item(i, in, tile); }
        template <class Block> DEV void next(const Block &mine) { i += clusters(mine); }
    };

    Shared &s;
    const i32 warp, lane;

    DEV explicit AttentionSplit(Shared &shared)
        : s(shared), warp(ptx::uniform(threadIdx.x / 32)), lane(threadIdx.x % 32)
    {
    }
    DEV static u32 address(const void *p) { return ptx::shared_address(p); }
    // The states of all warps over a part.
    DEV State *states(i32 i) const { return lends ? reinterpret_cast<State *>(s.ring) : s.of_warp[i]; }

    // ---- Producer: a warp ----

    DEV void init(const TensorMap &k, const TensorMap &v) const
    {
        ptx::tma_prefetch_map(&k);
        ptx::tma_prefetch_map(&v);
        for (i32 i = 0; i < stages; i++) {
            ptx::mbarrier_init(address(&s.full[i]), 1);
            ptx::mbarrier_init(address(&s.empty[i]), warps);
        }
        ptx::mbarrier_init(address(&s.warps_read), warps);
        s.inboxes.init();
        ptx::mbarrier_fence_init();
        ptx::fence_async_shared();
    }
    using Copies = KeyCopies<Config, bn>;
    // Where a chunk of a row lies in its tile.
    DEV static i32 place(i32 row, i32 chunk)
    {
        constexpr i32 box = Copies::box;
        if (boxes == 1) return row * swizzle_row;
        if (box == bn) return chunk * (bn * swizzle_row) + row * swizzle_row;
        return (u32)row / box * (boxes * box * swizzle_row) + (chunk * box + (u32)row % box) * swizzle_row;
    }
    // How much further row `row` of a warp's share lies than right behind its first one.
    DEV static i32 beyond(i32 row)
    {
        constexpr i32 box = Copies::box;
        return boxes == 1 || box >= share ? 0 : row / box * ((boxes - 1) * box * swizzle_row);
    }
    DEV void load(Cursor &at, const TensorMap &map, const Item &item, const Copies &copies) const
    {
        const u32 bar = address(&s.full[at.slot]);
        ptx::mbarrier_wait(address(&s.empty[at.slot]), at.parity);
        if (lane == 0) ptx::mbarrier_arrive_expect(bar, boxes * bn * swizzle_row);
        if (Copies::lanes > 1) __syncwarp();
        copies.run(item.batch, [&](i32 row, i32 time, i32 batch) {
            const u32 to = address(s.ring[at.slot]);
            if constexpr (whole)
                ptx::tma_load_once(to + place(row, 0), &map, bar, 0, item.head, time, 0, batch);
            for (i32 c = 0; c < (whole ? 0 : boxes); c++)
                ptx::tma_load_once(to + place(row, c), &map, bar, wide * c, item.head, time, batch);
        });
        at.next();
    }
    template <class Block>
    DEV void produce(const Block &mine, const TensorMap &k, const TensorMap &v,
                     const AttentionInputs &in) const
    {
        Cursor at = Cursor::producer();
        Config::early ? ptx::grid_wait_not() : ptx::grid_wait();
        for (Walk<> walk{first_item(mine)}; walk.there(in); walk.next(mine)) {
            const Item item = walk.item(in);
            const i32 end = item.begin(held);
            if (Config::starts && (lane >= Copies::lanes || item.keys.first == item.keys.end)) continue;
            KeyWalk<Config, bn> pages(in, item.batch, item.begin(0));
            for (i32 block = item.begin(0); block < end; block++) {
                const Copies copies = pages.of(in, item.batch, block);
                load(at, k, item, copies);
                load(at, v, item, copies);
            }
        }
    }

    // ---- Consumers: warps ----

    // Fragments of 16 columns, A of a product. Up to 8 rows, the next 16 columns are in the place of the rows
    // that do not exist: the first product is right in its upper rows, the second in its lower ones.
    static constexpr i32 fragments = 2 * chunks * halves;
    using Queries = u32[fragments][4];
    using Scores = float[4 * tiles]; // fragments of eight keys, then of eight columns
    using Out = float[octets][4];

    DEV void release(Cursor &at) const
    {
        __syncwarp();
        if (lane == 0) ptx::mbarrier_arrive(address(&s.empty[at.slot]));
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

    // The address in a tile of the ring of 16 bytes, eight columns or sixteen, of a row.
    DEV static u32 piece(u32 tile, i32 row, i32 octet)
    {
        return tile + place(row, octet / 8) + (octet % 8 ^ row % 8) * 16;
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
        ptx::mbarrier_wait(address(&s.full[at.slot]), at.parity);
        if (seen) multiply_keys(score, q, address(s.ring[at.slot]));
        release(at);
        ask();
        if (seen) weigh(score, softmax, as, item, key, out);
        ptx::mbarrier_wait(address(&s.full[at.slot]), at.parity);
        if (seen) {
            clear_values(item, key, at.slot);
            multiply_values(out, score, address(s.ring[at.slot]));
        }
        release(at);
        ask();
    }

    // Waits until the states of the parts before have been read, or all warps the ring.
    DEV void wait_to_put(u32 count) const
    {
        if (!lends) return ptx::mbarrier_wait(address(&s.warps_read), count & 1 ^ 1);
        __syncwarp();
        ptx::named_barrier(barrier_streamers, 32 * warps);
    }
    // The state of this warp over a part.
    DEV void put(const OnlineSoftmax &softmax, const Out &out, i32 part, u32 count) const
    {
        State &to = states(part % together)[warp];
        wait_to_put(count);
#pragma unroll
        for (i32 r = 0; r < halves; r++) {
            const i32 row = lane / 4 + 8 * r;
            const float sum = quad_sum(softmax.sum[r]);
            if (row >= rows) continue;
            if (lane % 4 == 0) to.peak[row].max = softmax.max[r], to.peak[row].sum = sum;
            if (narrow) {
                put_narrow(&to.out[row][lane % 4 * 4], out, r);
                continue;
            }
#pragma unroll
            for (i32 i = 0; i < octets; i++)
                port::store_pair(&to.out[row][8 * i + lane % 4 * 2], {out[i][2 * r], out[i][2 * r + 1]});
        }
    }

    DEV Partial<Config> merge_warps(const State *of_warp, i32 row, i32 column) const
    {
        Partial<Config> all;
#pragma unroll
        for (i32 w = 0; w < warps; w++) all.max = fmaxf(all.max, of_warp[w].peak[row].max);
#pragma unroll
        for (i32 w = 0; w < warps; w++) {
            float x[4];
            ptx::shared_load(x, address(&of_warp[w].out[row][column]));
            all.add(of_warp[w].peak[row], x);
        }
        return all;
    }
    // The parts from `first` on that are joined at one time, of which some have keys.
    DEV Partial<Config> merge_parts(const Item &item, i32 first, i32 row, i32 column) const
    {
        Partial<Config> part[together];
#pragma unroll
        for (i32 i = 0; i < together; i++)
            if (together == 1 || item.any(first + i, first + i + 1))
                part[i] = merge_warps(states(i), row, column);
#pragma unroll
        for (i32 d = 1; d < together; d *= 2)
#pragma unroll
            for (i32 i = 0; i < together; i += 2 * d) part[i].join(part[i + d]);
        return part[0];
    }
    // Up the tree of this block's parts, as far as siblings have been here; one without keys counts as
    // having. The last part comes to the top. A thread has the same columns of a row in all parts.
    DEV void join(const Item &item, i32 part, u32 turn) const
    {
#pragma unroll 1
        for (i32 e = threadIdx.x; e < rows * columns / 4; e += 32 * warps) {
            const i32 row = e / (columns / 4), column = e % (columns / 4) * 4;
            Partial<Config> all = merge_parts(item, part / together * together, row, column);
            bool waits = false;
#pragma unroll
            for (i32 level = climbed; level < levels; level++) {
                const i32 sibling = part >> level ^ 1;
                if (!item.any(sibling << level, sibling + 1 << level)) continue;
                State &left = s.of_left[level - climbed];
                waits = sibling & 1;
                if (waits) {
                    ptx::shared_store(address(&left.out[row][column]), all.out);
                    if (column == 0) left.peak[row].max = all.max, left.peak[row].sum = all.sum;
                    break;
                }
                Partial<Config> pair;
                pair.max = left.peak[row].max, pair.sum = left.peak[row].sum;
                ptx::shared_load(pair.out, address(&left.out[row][column]));
                pair.join(all);
                all = pair;
            }
            if (!waits) s.inboxes.send(all, row, column, turn);
        }
    }
    // Ends a part of item number `turn`; `count` parts were joined by this block before, some with others.
    DEV void publish(const OnlineSoftmax &softmax, const Out &out, const Item &item, i32 part, u32 &count,
                     u32 turn) const
    {
        put(softmax, out, part, count);
        if (item.any(part + 1, part / together * together + together)) return;
        __syncwarp();
        ptx::named_barrier(barrier_streamers, 32 * warps);
        join(item, part, turn);
        __syncwarp();
        if (lane == 0) ptx::mbarrier_arrive(address(&s.warps_read));
        count++;
    }
    // A block that had no keys of the item.
    DEV void publish_nothing(u32 turn) const
    {
#pragma unroll 1
        for (i32 e = threadIdx.x; e < rows * columns / 4; e += 32 * warps)
            s.inboxes.send(Partial<Config>(), e / (columns / 4), e % (columns / 4) * 4, turn);
    }
    // This block's parts of an item's keys; ask() follows each tile that has been read.
    template <class Ask>
    DEV void attend_parts(Cursor &at, const Queries &x, const Rows &as, const Item &item, u32 &count,
                          u32 turn, Ask ask) const
    {
#pragma unroll 1
        for (i32 part = 0; part < held; part++) {
            OnlineSoftmax softmax;
            Out out = {};
            if (!item.any(part, part + 1)) continue;
            for (i32 block = item.begin(part); block < item.begin(part + 1); block++)
                attend(at, x, softmax, as, item, block, out, ask);
            publish(softmax, out, item, part, count, turn);
        }
        if (!item.any(0, held)) publish_nothing(turn);
    }
    // Queries of keys in 8 bits.
    DEV void narrow_item(Queries &x, Rows &as, const Item &item, const AttentionInputs &in) const
    {
        if constexpr (narrow) {
            for (i32 r = 0; r < halves; r++) as.times[r] = key_scale<Config>(in, item.head);
            if constexpr (Config::bf16_queries) narrow_queries(x, as.times);
        }
    }
    // Where registers allow it, the next item's queries come while this one's keys are weighed.
    template <class Block>
    DEV void consume(const Block &mine, const Element *q, const AttentionStrides &stride,
                     const AttentionInputs &in) const
    {
        constexpr bool ahead = halves == 1 && !(narrow && chunks > 1) && !Config::starts;
        Cursor at;
        u32 turn = 0, count = 0;
        Queries x, next;
        if constexpr (ahead)
            if (first_item(mine) < items(in)) load_queries(next, q, stride, Item(first_item(mine), in));
        for (Walk<> walk{first_item(mine)}; walk.there(in); walk.next(mine), turn++) {
            const Item item = walk.item(in);
            Rows as(in, item, lane / 4);
            if (!ahead) load_queries(next, q, stride, item);
#pragma unroll
            for (i32 j = 0; j < 4 * fragments; j++) x[j / 4][j % 4] = next[j / 4][j % 4];
            narrow_item(x, as, item, in);
            if constexpr (ahead)
                if (walk.i + clusters(mine) < items(in))
                    load_queries(next, q, stride, Item(walk.i + clusters(mine), in));
            attend_parts(at, x, as, item, count, turn, [] {});
        }
    }

    // ---- Merger: a warp ----

    // This rank's slice of the columns.
    DEV void write(const Item &item, u32 turn, Element *out, const AttentionStrides &stride,
                   const AttentionInputs &in) const
    {
        out += (Config::starts ? 0 : item.batch) * stride.batch + item.head * Config::group * stride.head;
#pragma unroll 1
        for (i32 e = lane; e < item.live() * (slice / 4); e += 32) {
            const i32 row = e / (slice / 4), at = e % (slice / 4) * 4;
            const i32 column = (i32)ptx::cluster_rank() * slice + at;
            float y[4] = {};
            if (column >= Config::head_dim) continue;
            float lse = unseen();
            if (!item.see.none(item.query_of(row)))
                lse = s.inboxes.merge(Score<Config>(in, item.head_of(row)), row, at, turn, y);
            if (Config::lse && column == 0)
                Score<Config>::store(in, item.batch, item.head_of(row), item.query_of(row), lse);
            if (!Config::stored) continue;
#pragma unroll
            for (i32 k = 0; k < 4 && Config::v_scales; k++) y[k] *= value_scale<Config>(in, item.head);
            port::store_piece(
                out + item.query_of(row) * stride.time + row % Config::group * stride.head + column, y);
        }
    }
    template <class Block>
    DEV void merge(const Block &mine, Element *out, const AttentionStrides &stride,
                   const AttentionInputs &in) const
    {
        u32 turn = 0;
        for (Walk<> walk{first_item(mine)}; walk.there(in); walk.next(mine), turn++) {
            s.inboxes.receive(turn, lane);
            write(walk.item(in), turn, out, stride, in);
            s.inboxes.release(turn, lane);
        }
    }

    // ---- A block that has one item ----

    // What warp 0 asks for next: the keys of a block, then its values.
    struct Feed {
        Cursor at;
        KeyWalk<Config, bn> pages;
        i32 block, end;
        bool values;
        DEV Feed(const AttentionInputs &in, const Item &item)
            : at(Cursor::producer()), pages(in, item.batch, item.begin(0)), block(item.begin(0)),
              end(item.begin(held)), values(false)
        {
        }
    };
    DEV void ask(Feed &feed, const TensorMap &k, const TensorMap &v, const Item &item,
                 const AttentionInputs &in) const
    {
        if (warp != 0 || feed.block == feed.end) return;
        const Copies copies = feed.pages.of(in, item.batch, feed.block);
        if (lane < Copies::lanes) load(feed.at, feed.values ? v : k, item, copies);
        __syncwarp();
        feed.block += feed.values;
        feed.values = !feed.values;
    }
    // Fills the ring. From the first block of keys on that has a row of the run's it waits for who writes it.
    DEV void ask_early(Feed &feed, const TensorMap &k, const TensorMap &v, const Item &item,
                       const AttentionInputs &in, const AppendedSlots &slots) const
    {
        for (i32 i = 0; i < stages; i++) {
            if (Config::appends && warp == 0 && feed.block != feed.end) {
                const Copies copies = feed.pages.of(in, item.batch, feed.block);
                if (slots.among(copies.slot(in, item.batch), Copies::box)) ptx::grid_wait();
            }
            ask(feed, k, v, item, in);
        }
    }
    DEV void run_item(const Item &item, const TensorMap &k, const TensorMap &v, const Element *q,
                      const AttentionStrides &of_q, Element *out, const AttentionStrides &of_o,
                      const AttentionInputs &in, const AppendedSlots &slots) const
    {
        Feed feed(in, item);
        ask_early(feed, k, v, item, in, slots);
        ptx::grid_wait();
        ptx::cluster_wait();
        Cursor at;
        u32 count = 0;
        Queries x;
        Rows as(in, item, lane / 4);
        load_queries(x, q, of_q, item);
        narrow_item(x, as, item, in);
        attend_parts(at, x, as, item, count, 0, [&] { ask(feed, k, v, item, in); });
        if (warp != merger) return;
        s.inboxes.receive(0, lane);
        write(item, 0, out, of_o, in);
    }

    // ---- Kernel ----

    // Mbarriers of the cluster are there before anybody arrives on them, and memory until all have read it.
    template <class Block>
    DEV static void run(const Block &mine, const TensorMap &k, const TensorMap &v, const Element *q,
                        const AttentionStrides &of_q, Element *out, const AttentionStrides &of_o,
                        const AttentionInputs &in, const AppendedRows &appended = {})
    {
        const AttentionSplit self(*reinterpret_cast<Shared *>(mine.shared()));
        if (self.warp == producer && self.lane == 0) self.init(k, v);
        __syncwarp();
        ptx::cluster_arrive_relaxed();
        ptx::grid_launch_next(); // it waits before it reads what a program of this run writes
        if constexpr (!walks) {
            Config::early ? ptx::grid_wait_not() : ptx::grid_wait();
            const AppendedSlots slots(appended); // on their way while the item's length is
            self.run_item(Item(first_item(mine), in), k, v, q, of_q, out, of_o, in, slots);
        } else if (self.warp == producer) {
            if (Config::starts || self.lane < Copies::lanes) self.produce(mine, k, v, in);
            __syncwarp();
            ptx::cluster_wait();
        } else {
            ptx::cluster_wait();
            ptx::grid_wait();
            if (self.warp == merger) self.merge(mine, out, of_o, in);
            else self.consume(mine, q, of_q, in);
        }
        __syncwarp();
        ptx::cluster_arrive();
        ptx::cluster_wait();
    }
};

} // namespace coda
