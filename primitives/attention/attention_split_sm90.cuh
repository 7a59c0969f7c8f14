// attention_split_sm90.cuh -- attention of few queries to many keys on Hopper: the blocks of a cluster share
// the keys, which stream through shared memory at memory's pace.
//
// An item is one sequence and one key head. The queries of all heads of its group, at most 16, are the rows
// of one mma.sync. Its keys, in blocks of bn, are dealt in order to the blocks of a cluster, as equally as
// can be; of a block of keys warp w takes 16, from 16 w on. Clusters walk over the items.
//
//     producer    one thread: of each block of keys the keys, then the values, into a ring of `stages` slots
//     consumers   warps: S = Q K^T, online softmax, O += P V, each with a state of its own; at the end of an
//                 item they merge these in the order of warps
//     merger      a warp: when all blocks of the cluster have, it merges theirs in the order of ranks, for a
//                 part of the columns
//
// So consumers weigh the next item's keys while an item's blocks wait for each other. A row's result depends
// on its own sequence alone, whatever the others hold: who has which keys follows from the range of keys that
// the sequence's queries see, and every sum has a fixed order.
//
// Values that no query of the item sees are zeroed before they are multiplied, since zero times NaN is NaN. A
// NaN among those that one of its queries sees may reach its other queries.
//
// Early: no kernel of the run writes keys, values and lengths. So they are asked for before the kernel ahead
// has ended; only queries wait for it.
//
// Config: as attention_sm90.cuh has it, but for groups and band; i32 cluster; bool early; i64 q_batch,
// q_time, q_head.
#pragma once
#include "attention/merge.cuh"
#include "attention/online_softmax.cuh"
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

template <class Config> struct AttentionSplit {
    using Element = typename Config::T;
    static constexpr i32 bn = Config::bn, stages = Config::stages, cluster = Config::cluster;
    static constexpr i32 warps = 8, producer = warps, merger = warps + 1, threads = 32 * (warps + 2);
    static constexpr i32 share = bn / warps, tiles = share / 8; // of a warp: keys in a block; their products
    static constexpr i32 rows = Config::group * Config::tq, halves = rows > 8 ? 2 : 1; // of 8 rows
    static constexpr i32 chunks = (Config::head_dim + 63) / 64; // of 64 columns: 128 bytes, a swizzled row
    static constexpr i32 columns = 64 * chunks, octets = 8 * chunks;
    static constexpr i32 part = columns / cluster; // of the columns, that a rank merges
    static constexpr i32 kv_heads = Config::heads / Config::group, items = Config::batch * kv_heads;
    static constexpr float scale = Score<Config>::exponent;
    static_assert(!Config::ranges && rows <= 16 && columns % (4 * cluster) == 0 && share % 16 == 0);

    struct State { // of the rows, over some of the keys
        alignas(16) float out[rows][columns];
        Peak peak[rows];
    };
    struct alignas(swizzle_atom) Shared { // tiles are chunks of [bn][64]
        u8 ring[stages][chunks][bn * swizzle_row];
        State of_warp[warps];
        State of_block[2]; // of two items, in turns
        u64 full[stages], empty[stages];
        u64 warps_read;                    // of_warp is free
        u64 blocks_put[2], blocks_read[2]; // of_block is full in the whole cluster, and free
    };
    static constexpr i32 shared_bytes = sizeof(Shared);

    using Cursor = RingCursor<stages>;

    // One sequence and one key head, and the blocks of keys that this block of the cluster has.
    struct Item {
        i32 batch, head;
        Visible<Config> see;
        KeyBlocks keys;

        DEV Item(i32 i, const AttentionInputs &in)
            : batch(i / kv_heads), head(i % kv_heads), see(in, batch),
              keys(key_blocks<Config>(see, 0, Config::tq - 1))
        {
            const i32 rank = (i32)ptx::cluster_rank(), all = keys.end - keys.first;
            keys.end = keys.first + all * (rank + 1) / cluster;
            keys.first += all * rank / cluster;
        }
        // Some query sees a key from `first_seen` on, below `end_seen`.
        DEV i32 first_seen() const { return see.of(0).first; }
        DEV i32 end_seen() const { return see.of(Config::tq - 1).end; }
        DEV i32 head_of(i32 row) const { return head * Config::group + row % Config::group; }
    };
    DEV static i32 first_item() { return blockIdx.x / cluster; }
    DEV static i32 clusters() { return gridDim.x / cluster; }

    Shared &s;
    const i32 warp, lane;

    DEV explicit AttentionSplit(Shared &shared)
        : s(shared), warp(ptx::uniform(threadIdx.x / 32)), lane(threadIdx.x % 32)
    {
    }
    DEV static u32 address(const void *p) { return ptx::shared_address(p); }

    // ---- Producer: one thread ----

    DEV void init() const
    {
        for (i32 i = 0; i < stages; i++) {
            ptx::mbarrier_init(address(&s.full[i]), 1);
            ptx::mbarrier_init(address(&s.empty[i]), warps);
        }
        ptx::mbarrier_init(address(&s.warps_read), warps);
        for (i32 i = 0; i < 2; i++) {
            ptx::mbarrier_init(address(&s.blocks_put[i]), cluster * warps);
            ptx::mbarrier_init(address(&s.blocks_read[i]), cluster);
        }
        ptx::mbarrier_fence_init();
        ptx::fence_async_shared();
    }
    DEV void load(Cursor &at, const TensorMap &map, i32 block, const Item &item,
                  const AttentionInputs &in) const
    {
        const u32 bar = address(&s.full[at.slot]);
        ptx::mbarrier_wait(address(&s.empty[at.slot]), at.parity);
        ptx::mbarrier_arrive_expect(bar, chunks * bn * swizzle_row);
        load_keys<Config, bn>(in, item.batch, block * bn, [&](i32 row, i32 time, i32 batch) {
            for (i32 c = 0; c < chunks; c++)
                ptx::tma_load_once(address(s.ring[at.slot][c] + row * swizzle_row), &map, bar, 64 * c,
                                   item.head, time, batch);
        });
        at.next();
    }
    DEV void produce(const TensorMap &k, const TensorMap &v, const AttentionInputs &in) const
    {
        Cursor at = Cursor::producer();
        Config::early ? ptx::grid_wait_not() : ptx::grid_wait();
        for (i32 i = first_item(); i < items; i += clusters()) {
            const Item item(i, in);
            for (i32 block = item.keys.first; block < item.keys.end; block++) {
                load(at, k, block, item, in);
                load(at, v, block, item, in);
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

    // Row r is query r / group of head r % group of the group.
    DEV static i32 query_of(i32 row) { return row / Config::group; }
    DEV u32 load_pair(const Element *q, i32 row, i32 column) const
    {
        if (row >= rows || column >= Config::head_dim) return 0;
        return *reinterpret_cast<const u32 *>(q + query_of(row) * Config::q_time +
                                              row % Config::group * Config::q_head + column);
    }
    DEV void load_queries(Queries &x, const Element *q, const Item &item) const
    {
        q += item.batch * Config::q_batch + item.head * Config::group * Config::q_head;
#pragma unroll
        for (i32 i = 0; i < fragments; i++)
#pragma unroll
            for (i32 j = 0; j < 4; j++) {
                const i32 lower = j % 2, row = lane / 4 + (halves > 1 ? 8 * lower : 0);
                const i32 column = halves > 1 ? 16 * i : 32 * i + 16 * lower;
                x[i][j] = load_pair(q, row, column + j / 2 * 8 + lane % 4 * 2);
            }
    }

    // Of a tile in the ring: 16 bytes, eight columns, of a row.
    DEV static u32 piece(u32 tile, i32 row, i32 octet)
    {
        return tile + octet / 8 * (bn * swizzle_row) + row * swizzle_row + (octet % 8 ^ row % 8) * 16;
    }

    // S = Q K^T of this warp's keys, eight in a product.
    DEV void multiply_keys(Scores &score, const Queries &q, u32 tile) const
    {
        const i32 row = share * warp + lane % 8 + lane / 16 * 8, half = lane / 8 % 2;
        float sums[2][tiles][4] = {};
#pragma unroll
        for (i32 i = 0; i < 4 * chunks; i++)
#pragma unroll
            for (i32 j = 0; j < tiles; j += 2) {
                const i32 lower = halves > 1 ? 0 : i % 2, at = halves > 1 ? i : i / 2;
                u32 k[4];
                ptx::ldmatrix(piece(tile, row + 8 * j, 2 * i + half), k);
                ptx::mma<Element>(sums[lower][j], q[at], k[0], k[1]);
                ptx::mma<Element>(sums[lower][j + 1], q[at], k[2], k[3]);
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
            const u32 weight[4] = {pack2<Element>(x[0], x[1]), halves > 1 ? pack2<Element>(x[2], x[3]) : 0,
                                   pack2<Element>(x[4], x[5]), halves > 1 ? pack2<Element>(x[6], x[7]) : 0};
#pragma unroll
            for (i32 i = 0; i < octets; i += 2) {
                u32 v[4];
                ptx::ldmatrix_transposed(piece(tile, row + 16 * j, i + lane / 16), v);
                ptx::mma<Element>(out[i], weight, v[0], v[1]);
                ptx::mma<Element>(out[i + 1], weight, v[2], v[3]);
            }
        }
    }

    // How this lane's rows score.
    struct Rows {
        Score<Config> upper, lower;
        DEV Rows(const AttentionInputs &in, const Item &item, i32 row)
            : upper(in, item.head_of(row)), lower(in, item.head_of(row + 8))
        {
        }
    };
    // Products become scores; `key` is the warp's first one.
    DEV void turn(Scores &score, const Rows &as, const Item &item, i32 key) const
    {
#pragma unroll
        for (i32 i = 0; i < 4 * tiles; i++) {
            if (halves == 1 && i & 2) continue;
            const i32 row = lane / 4 + 8 * (i >> 1 & 1), at = key + i / 4 * 8 + lane % 4 * 2 + (i & 1);
            score[i] = (i & 2 ? as.lower : as.upper).of(score[i], query_of(row) + item.see.shift() - at);
        }
    }
    // Scores of keys that a row's query does not see; `key` is the warp's first one.
    DEV void hide(Scores &score, const Visible<Config> &see, i32 key) const
    {
#pragma unroll
        for (i32 r = 0; r < halves; r++) {
            const i32 query = min(query_of(lane / 4 + 8 * r), Config::tq - 1);
            const KeyRange seen = see.of(query);
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
        for (i32 c = 0; c < chunks; c++)
            for (i32 e = lane; e < share * 8; e += 32)
                if (e / 8 < first || e / 8 >= end)
                    reinterpret_cast<uint4 *>(s.ring[slot][c] + share * warp * swizzle_row)[e] = uint4();
        ptx::fence_async_shared();
        __syncwarp();
    }

    DEV void weigh(Scores &score, OnlineSoftmax &softmax, const Rows &as, const Item &item, i32 key,
                   Out &out) const
    {
        float factor[halves];
        if (!Score<Config>::plain || Score<Config>::turned) turn(score, as, item, key);
        const KeyRange common = item.see.common(0, Config::tq - 1);
        if (key + share > common.end || key < common.first) hide(score, item.see, key);
        softmax.template step<halves>(score, scale, factor);
#pragma unroll
        for (i32 i = 0; i < octets; i++)
#pragma unroll
            for (i32 j = 0; j < 2 * halves; j++) out[i][j] *= factor[j / 2];
    }
    DEV void attend(Cursor &at, const Queries &q, OnlineSoftmax &softmax, const Rows &as, const Item &item,
                    i32 block, Out &out) const
    {
        const i32 key = block * bn + share * warp;
        const bool seen = key < item.end_seen() && key + share > item.first_seen();
        Scores score = {};
        ptx::mbarrier_wait(address(&s.full[at.slot]), at.parity);
        if (seen) multiply_keys(score, q, address(s.ring[at.slot]));
        release(at);
        if (seen) weigh(score, softmax, as, item, key, out);
        ptx::mbarrier_wait(address(&s.full[at.slot]), at.parity);
        if (seen) {
            clear_values(item, key, at.slot);
            multiply_values(out, score, address(s.ring[at.slot]));
        }
        release(at);
    }

    // The state of this warp, when the last item's has been read.
    DEV void put(const OnlineSoftmax &softmax, const Out &out, u32 turn) const
    {
        State &to = s.of_warp[warp];
        ptx::mbarrier_wait(address(&s.warps_read), turn & 1 ^ 1);
#pragma unroll
        for (i32 r = 0; r < halves; r++) {
            const i32 row = lane / 4 + 8 * r;
            const float sum = quad_sum(softmax.sum[r]);
            if (row >= rows) continue;
            if (lane % 4 == 0) to.peak[row].max = softmax.max[r], to.peak[row].sum = sum;
#pragma unroll
            for (i32 i = 0; i < octets; i++)
                port::store_pair(&to.out[row][8 * i + lane % 4 * 2], {out[i][2 * r], out[i][2 * r + 1]});
        }
    }

    DEV void merge_warps(State &to) const
    {
#pragma unroll 1
        for (i32 e = threadIdx.x; e < rows * columns / 4; e += 32 * warps) {
            const i32 row = e / (columns / 4), column = e % (columns / 4) * 4;
            Merge<Config> all;
#pragma unroll
            for (i32 w = 0; w < warps; w++) all.see(s.of_warp[w].peak[row].max);
#pragma unroll
            for (i32 w = 0; w < warps; w++) {
                float x[4];
                const Peak peak = s.of_warp[w].peak[row];
                ptx::shared_load(x, address(&s.of_warp[w].out[row][column]));
                all.add(peak.max, peak.sum, x);
            }
            ptx::shared_store(address(&to.out[row][column]), all.out);
            if (column == 0) to.peak[row].max = all.most, to.peak[row].sum = all.sum;
        }
    }
    // A warp tells all mergers of the cluster, by a lane each.
    DEV void tell(u64 &bar) const
    {
        __syncwarp();
        if (lane < cluster) ptx::cluster_mbarrier_release(ptx::cluster_address(address(&bar), lane));
    }
    // The block's state of item number `turn`. What the item two before has left was read by then.
    DEV void publish(const OnlineSoftmax &softmax, const Out &out, u32 turn) const
    {
        put(softmax, out, turn);
        __syncwarp();
        ptx::named_barrier(barrier_streamers, 32 * warps);
        ptx::cluster_mbarrier_wait(address(&s.blocks_read[turn % 2]), turn / 2 & 1 ^ 1);
        merge_warps(s.of_block[turn % 2]);
        tell(s.blocks_put[turn % 2]);
        if (lane == 0) ptx::mbarrier_arrive(address(&s.warps_read));
    }
    // Where registers allow it, the next item's queries come while this one's keys are weighed.
    DEV void consume(const Element *q, const AttentionInputs &in) const
    {
        constexpr bool ahead = halves == 1;
        Cursor at;
        u32 turn = 0;
        Queries x, next;
        if (ahead && first_item() < items) load_queries(next, q, Item(first_item(), in));
        for (i32 i = first_item(); i < items; i += clusters(), turn++) {
            const Item item(i, in);
            const Rows as(in, item, lane / 4);
            OnlineSoftmax softmax;
            Out out = {};
            if (!ahead) load_queries(next, q, item);
#pragma unroll
            for (i32 j = 0; j < 4 * fragments; j++) x[j / 4][j % 4] = next[j / 4][j % 4];
            if (ahead && i + clusters() < items) load_queries(next, q, Item(i + clusters(), in));
            for (i32 block = item.keys.first; block < item.keys.end; block++)
                attend(at, x, softmax, as, item, block, out);
            publish(softmax, out, turn);
        }
    }

    // ---- Merger: a warp ----

    // This rank's part of the columns.
    DEV void write(const Item &item, const State &state, Element *out, const AttentionInputs &in) const
    {
        out += item.batch * Config::o_batch + item.head * Config::group * Config::o_head;
#pragma unroll 1
        for (i32 e = lane; e < rows * (part / 4); e += 32) {
            const i32 row = e / (part / 4), column = (i32)ptx::cluster_rank() * part + e % (part / 4) * 4;
            float y[4] = {};
            if (column >= Config::head_dim) continue;
            float lse = unseen();
            if (!item.see.none(query_of(row)))
                lse = merge_blocks<cluster>(Score<Config>(in, item.head_of(row)), address(&state.peak[row]),
                                            address(&state.out[row][column]), y);
            if (Config::lse && column == 0)
                Score<Config>::store(in, item.batch, item.head_of(row), query_of(row), lse);
            if (!Config::stored) continue;
            port::store_piece(
                out + query_of(row) * Config::o_time + row % Config::group * Config::o_head + column, y);
        }
    }
    DEV void merge(Element *out, const AttentionInputs &in) const
    {
        u32 turn = 0;
        for (i32 i = first_item(); i < items; i += clusters(), turn++) {
            ptx::cluster_mbarrier_wait(address(&s.blocks_put[turn % 2]), turn / 2 & 1);
            write(Item(i, in), s.of_block[turn % 2], out, in);
            tell(s.blocks_read[turn % 2]);
        }
    }

    // ---- Kernel ----

    // Mbarriers of the cluster are there before anybody arrives on them, and memory until all have read it.
    DEV static void run(const TensorMap &k, const TensorMap &v, const Element *q, Element *out,
                        const AttentionInputs &in)
    {
        extern __shared__ __align__(swizzle_atom) u8 memory[];
        const AttentionSplit self(*reinterpret_cast<Shared *>(memory));
        if (self.warp == producer && self.lane == 0) self.init();
        __syncwarp();
        ptx::cluster_arrive();
        if (Config::early) ptx::grid_launch_next();
        if (self.warp == producer) {
            if (self.lane == 0) self.produce(k, v, in);
            __syncwarp();
            ptx::cluster_wait();
        } else {
            ptx::cluster_wait();
            ptx::grid_wait();
            if (self.warp == merger) self.merge(out, in);
            else self.consume(q, in);
        }
        __syncwarp();
        ptx::cluster_arrive();
        ptx::cluster_wait();
    }
};

} // namespace coda
