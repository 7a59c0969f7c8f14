// attention_grad.cuh -- the gradients of attention: which block makes what, whatever multiplies.
//
// One launch has blocks of four kinds, each of which writes results that no other block writes, so that
// nothing is added by atomics and equal inputs give equal bits:
//     keys     bm keys of a key head: they walk the queries of each head that reads them, for dk and dv
//     queries  bm queries of a head: they walk the keys that these see, for dq
//     pairs    bm queries and bn keys of a bias, or what it has of them: they walk what it is for, for dbias
//     heads    a head: they walk all of its queries, and their keys, for dsinks and dslopes
// Scores are made again by each. A block holds its own rows of two tensors in shared memory, and brings
// those that it walks, bn at a time, beside them: k and v of keys, q and do of queries. With two stages the
// next ones come while these are multiplied.
//
// A Unit of the Config multiplies (attention_grad_simt.cuh, attention_grad_mma.cuh). It has bm, bn, threads,
// stages; `rows` own rows and `walked` walked ones of which a thread has the products, Pairs, and which ones
// these are, row_of and walked_of; Sums, what a thread has of bm rows of a result; wide: registers hold Sums
// of dk or of dv, not of both; tile_bytes<n>, n rows in shared memory; and
//     copy<quads, n>(to, from, place)      brings them as Rows does (rows.cuh)
//     multiply(p, own, walked)             p = own . walked, of whole rows
//     accumulate(o, w, weights, walked)    o += w times the walked rows; weights: its own shared memory
//     write<quads>(o, to, time, first, end, scale, keeps)   rows below `end`, zeros where keeps(row) is false
//
// Config: types Q K V; bm bn; {q,k,v,do,dq,dk,dv}_quads (rows.cuh); has_{dq,dk,dv,dsinks,dbias,dslopes};
// dbias_{batch,heads,time,key}: has dbias more than one element of these; and as attention_sm90.cuh has it,
// from heads on, but for tiles.
#pragma once
#include "attention/packed.cuh"
#include "attention/rows.cuh"
#include "attention/score_grad.cuh"

namespace coda {

// Blocks of each kind; tiles of bm keys of a sequence, of bn, and of bm queries of all.
struct AttentionGradBlocks {
    i32 keys, queries, pairs, heads, key_tiles, walked_tiles, query_tiles;
};

template <class Config> struct AttentionGradTensors {
    const typename Config::Q *q;
    const typename Config::K *k;
    const typename Config::V *v;
    const float *delta;
    const typename Config::Q *d_o;
    const float *lse;
    typename Config::Q *dq;
    typename Config::K *dk;
    typename Config::V *dv;
    float *dsinks, *dbias, *dslopes;
    const AttentionStrides &of_q, &of_k, &of_v, &of_delta, &of_do, &of_lse, &of_dq, &of_dk, &of_dv;
    const AttentionBias &of_dbias;
    const AttentionGradBlocks &blocks;
};

template <class Config, class Unit> struct AttentionGrad {
    static constexpr i32 bm = Unit::bm, bn = Unit::bn, head_dim = Config::head_dim;
    static constexpr i32 threads = Unit::threads, warps = threads / 32, stages = Unit::stages;
    static constexpr i32 rows = Unit::rows, walked = Unit::walked, blocks = Unit::blocks;
    static constexpr i32 kv_heads = Config::heads / Config::group;

    typedef AttentionGradTensors<Config> Tensors;
    typedef ScoreGrad<Config> Score;
    typedef typename Unit::Pairs Pairs;
    typedef typename Unit::Sums Sums;

    static constexpr bool sums_pairs = Config::has_dbias || Config::has_dslopes;
    static constexpr i32 weight_pitch = bn + 8, most = bm > bn ? bm : bn;
    static constexpr i32 weight_bytes = Unit::weighs || sums_pairs ? 4 * bm * weight_pitch : 0;
    static constexpr i32 own_bytes = Unit::template tile_bytes<bm>,
                         walk_bytes = Unit::template tile_bytes<bn>;
    static constexpr i32 shared_bytes =
        2 * own_bytes + 2 * stages * walk_bytes + weight_bytes + stages * 2 * 4 * most;

    // Own rows, and in each stage walked ones, of q or k and of do or v; weights; of each query in a stage
    // log sum e^s and delta.
    struct Shared {
        u8 *own_a, *own_b, *walk;
        float *weights, *statistics;

        DEV explicit Shared(u8 *memory)
            : own_a(memory), own_b(own_a + own_bytes), walk(own_b + own_bytes),
              weights((float *)(walk + 2 * stages * walk_bytes)),
              statistics((float *)((u8 *)weights + weight_bytes))
        {
        }
        DEV u8 *walk_a(i32 stage) const { return walk + 2 * stage * walk_bytes; }
        DEV u8 *walk_b(i32 stage) const { return walk_a(stage) + walk_bytes; }
        DEV float *lse(i32 stage) const { return statistics + 2 * stage * most; }
        DEV float *delta(i32 stage) const { return lse(stage) + most; }
    };
    // Queries of a head and of a sequence.
    struct Queries {
        const AttentionInputs &in;
        Visible<Config> see;
        i64 batch;
        i32 query, head; // the first one of a tile

        DEV i64 batch_of_q() const { return Config::starts ? 0 : batch; }
        DEV i32 kv_head() const { return head / Config::group; }
        DEV bool has(i32 at) const { return at < see.rows() && !see.none(at); }
    };

    DEV static i32 warp() { return ptx::uniform(threadIdx.x / 32); }
    DEV static i32 row_of(i32 i) { return Unit::row_of(i); }
    DEV static i32 walked_of(i32 j) { return Unit::walked_of(j); }

    DEV static float warp_sum(float x)
    {
#pragma unroll
        for (i32 d = 1; d < 32; d *= 2) x += __shfl_xor_sync(~0u, x, d);
        return x;
    }

    // ---- Rows into shared memory ----

    // `count` queries of q and do from `first` on. Those that see nothing are zeros, whatever they are.
    template <i32 count>
    DEV static void load_queries(u8 *a, u8 *b, const Tensors &x, const Queries &t, i32 first)
    {
        const typename Config::Q *q = x.q + t.batch_of_q() * x.of_q.batch + t.head * x.of_q.head,
                                 *d_o = x.d_o + t.batch_of_q() * x.of_do.batch + t.head * x.of_do.head;
        Unit::template copy<Config::q_quads, count>(a, q, [&](i32 r, i64 &at) {
            at = (first + r) * x.of_q.time;
            return t.has(first + r);
        });
        Unit::template copy<Config::do_quads, count>(b, d_o, [&](i32 r, i64 &at) {
            at = (first + r) * x.of_do.time;
            return t.has(first + r);
        });
        ptx::copy_async_commit();
    }
    template <i32 count>
    DEV static void load_keys(u8 *a, u8 *b, const Tensors &x, i64 batch, i32 kv_head, i32 first, i32 end)
    {
        const typename Config::K *k = x.k + batch * x.of_k.batch + kv_head * x.of_k.head;
        const typename Config::V *v = x.v + batch * x.of_v.batch + kv_head * x.of_v.head;
        Unit::template copy<Config::k_quads, count>(a, k, [&](i32 r, i64 &at) {
            at = (first + r) * x.of_k.time;
            return first + r < end;
        });
        Unit::template copy<Config::v_quads, count>(b, v, [&](i32 r, i64 &at) {
            at = (first + r) * x.of_v.time;
            return first + r < end;
        });
        ptx::copy_async_commit();
    }
    // For each query log sum e^s, -inf if it sees nothing, and delta, which attention_delta.cuh has left.
    template <i32 count>
    DEV static void load_statistics(float *to_lse, float *to_delta, const Tensors &x, const Queries &t,
                                    i32 first)
    {
        const i64 batch = t.batch_of_q();
        const float *lse = x.lse + batch * x.of_lse.batch + t.head * x.of_lse.head,
                    *delta = x.delta + batch * x.of_delta.batch + t.head * x.of_delta.head;
        for (i32 r = threadIdx.x; r < count; r += threads) {
            const i32 at = first + r;
            const bool there = t.has(at);
            to_lse[r] = there ? lse[at * x.of_lse.time] : unseen();
            to_delta[r] = there ? delta[at * x.of_delta.time] : 0.0f;
        }
    }

    // ---- Pairs ----

    // What one query and key make: of q . k and do . v their weight in p, and in ds the derivative by the
    // score, or, if `by_product`, by scale q . k.
    template <bool by_product>
    DEV static void weigh(float &p, float &ds, const Score &as, const Queries &t, const BiasRow<Config> &bias,
                          KeyRange seen, float lse, float delta, i32 query, i32 key)
    {
        const bool sees = query < t.see.rows() && key >= seen.first && key < seen.end;
        const typename Score::Pair made =
            as.of(p, ds, query + t.see.shift() - key, key, sees ? bias.of(key) : 0.0f, lse, delta);
        p = sees ? made.p : 0.0f;
        ds = !sees ? 0.0f : by_product ? made.dr : made.ds;
    }
    // Own rows are queries from `query` on, the walked ones keys from `key` on; or the other way round. The
    // queries' statistics are in a stage.
    template <bool own_queries, bool by_product>
    DEV static void weigh(Pairs &p, Pairs &ds, const Score &as, const Shared &s, i32 stage, const Queries &t,
                          i32 query, i32 key)
    {
        constexpr i32 outer = own_queries ? rows : walked, inner = own_queries ? walked : rows;
#pragma unroll
        for (i32 a = 0; a < outer; a++) {
            const i32 in_tile = own_queries ? row_of(a) : walked_of(a), at = query + in_tile;
            const KeyRange seen = t.see.of(at);
            const BiasRow<Config> bias(t.in, (i32)t.batch, t.head, min(at, t.see.rows() - 1));
            const float lse = s.lse(stage)[in_tile], delta = s.delta(stage)[in_tile];
#pragma unroll
            for (i32 b = 0; b < inner; b++) {
                const i32 i = own_queries ? a : b, j = own_queries ? b : a;
                weigh<by_product>(p[i][j], ds[i][j], as, t, bias, seen, lse, delta, at,
                                  key + (own_queries ? walked_of(b) : row_of(b)));
            }
        }
    }

    // ---- Blocks of keys ----

    // The queries of a sequence.
    DEV static Queries all_queries(const AttentionInputs &in, i32 batch)
    {
        if constexpr (Config::starts) {
            i32 first = 0, end = 0;
#pragma unroll 1
            for (i32 b = 0; b <= batch + 1; b++) {
                first = end;
                end = max(end, min(in.starts[b * Config::starts_stride], in.extents.tq));
            }
            const PackedTile<Config> piece = {batch, first, end, first};
            return {in, Visible<Config>(in, piece), batch, first, 0};
        } else return {in, Visible<Config>(in, batch), batch, 0, 0};
    }
    // The first bn queries from `query` on of which some see one of bm keys; the end, if there are none.
    DEV static i32 next_queries(const Queries &t, i32 query, i32 key)
    {
        const i32 end = t.see.rows();
#pragma unroll 1
        for (; query < end; query += bn) {
            const KeyRange seen = t.see.some(query, min(query + bn, end) - 1);
            if (seen.end > key && seen.first < key + bm) break;
        }
        return query;
    }
    DEV static void bring_queries(const Shared &s, i32 stage, const Tensors &x, const Queries &t, i32 query)
    {
        load_queries<bn>(s.walk_a(stage), s.walk_b(stage), x, t, query);
        load_statistics<bn>(s.lse(stage), s.delta(stage), x, t, query);
    }

    template <bool has_dk, bool has_dv>
    DEV static void walk_queries(const Shared &s, const Tensors &x, const Queries &t, i32 key, Sums &dk,
                                 Sums &dv)
    {
        const Score as(t.in, t.head);
        const i32 end = t.see.rows();
        i32 query = next_queries(t, t.query, key), stage = 0;
        __syncthreads(); // the last head's queries have been read
        if (query < end) bring_queries(s, 0, x, t, query);
#pragma unroll 1
        while (query < end) {
            const i32 next = next_queries(t, query + bn, key);
            Pairs p, ds;
            ptx::copy_async_wait<0>();
            __syncthreads(); // these have come, and those before them have been read
            if (stages > 1 && next < end) bring_queries(s, stage ^ 1, x, t, next);
            Unit::multiply(p, s.own_a, s.walk_a(stage));
            Unit::multiply(ds, s.own_b, s.walk_b(stage));
            weigh<false, true>(p, ds, as, s, stage, t, query, key);
            if (has_dv) Unit::accumulate(dv, p, s.weights, s.walk_b(stage));
            if (has_dk) Unit::accumulate(dk, ds, s.weights, s.walk_a(stage));
            if (stages == 1) __syncthreads();
            if (stages == 1 && next < end) bring_queries(s, 0, x, t, next);
            query = next, stage ^= stages > 1;
        }
    }

    template <bool has_dk, bool has_dv>
    DEV static void of_keys(const Shared &s, const Tensors &x, const AttentionInputs &in, u32 index)
    {
        const i32 kv_head = index % kv_heads, tile = index / kv_heads;
        const i32 batch = tile / x.blocks.key_tiles, key = tile % x.blocks.key_tiles * bm;
        Queries t = all_queries(in, batch);
        Sums dk = {}, dv = {};
        if (key < t.see.keys) {
            load_keys<bm>(s.own_a, s.own_b, x, batch, kv_head, key, t.see.keys);
#pragma unroll 1
            for (i32 h = 0; h < Config::group; h++) {
                t.head = kv_head * Config::group + h;
                walk_queries<has_dk, has_dv>(s, x, t, key, dk, dv);
            }
            ptx::copy_async_wait<0>();
        }
        const auto keeps = [&](i32 at) { return at < t.see.keys; };
        if (has_dk)
            Unit::template write<Config::dk_quads>(dk, x.dk + batch * x.of_dk.batch + kv_head * x.of_dk.head,
                                                   x.of_dk.time, key, in.extents.tk, Config::scale, keeps);
        if (has_dv)
            Unit::template write<Config::dv_quads>(dv, x.dv + batch * x.of_dv.batch + kv_head * x.of_dv.head,
                                                   x.of_dv.time, key, in.extents.tk, 1.0f, keeps);
    }

    // ---- Blocks of queries ----

    // Calls fn with tile `unit` of the queries of a head, if there is one.
    template <class Fn> DEV static void with_tile(const AttentionInputs &in, u32 unit, i32 head, Fn fn)
    {
        if constexpr (Config::starts) {
            PackedTile<Config> found;
            if (PackedTiles<Config>().find(in, unit, found))
                fn(Queries{in, Visible<Config>(in, found), found.batch, found.query, head});
        } else {
            const u32 tiles = in.extents.blocks, batch = unit / tiles;
            fn(Queries{in, Visible<Config>(in, batch), batch, (i32)(unit % tiles * bm), head});
        }
    }
    DEV static KeyBlocks keys_of(const Queries &t)
    {
        return key_blocks<Config>(t.see, t.query, min(t.query + bm, t.see.rows()) - 1);
    }
    // Holds the queries of a tile and calls fn(b, stage, p, ds) with the pairs of each block of keys; ds is
    // by scale q . k, if `by_product`, else by the score.
    template <bool by_product, class Fn>
    DEV static void walk_keys(const Shared &s, const Tensors &x, const Queries &t, KeyBlocks range, Fn fn)
    {
        if (range.first >= range.end) return;
        const Score as(t.in, t.head);
        const auto bring = [&](i32 stage, i32 b) {
            load_keys<bn>(s.walk_a(stage), s.walk_b(stage), x, t.batch, t.kv_head(), b * bn, t.see.keys);
        };
        i32 stage = 0;
        __syncthreads(); // those before them have been read
        load_queries<bm>(s.own_a, s.own_b, x, t, t.query);
        bring(0, range.first);
        load_statistics<bm>(s.lse(0), s.delta(0), x, t, t.query);
#pragma unroll 1
        for (i32 b = range.first; b < range.end; b++) {
            Pairs p, ds;
            ptx::copy_async_wait<0>();
            __syncthreads(); // these have come, and those before them have been read
            if (stages > 1 && b + 1 < range.end) bring(stage ^ 1, b + 1);
            Unit::multiply(p, s.own_a, s.walk_a(stage));
            Unit::multiply(ds, s.own_b, s.walk_b(stage));
            weigh<true, by_product>(p, ds, as, s, 0, t, t.query, b * bn);
            fn(b, stage, p, ds);
            if (stages == 1) __syncthreads();
            if (stages == 1 && b + 1 < range.end) bring(0, b + 1);
            stage ^= stages > 1;
        }
    }

    // A row that sees nothing shares its tile with others: its weights are 0, but what they meet may be NaN.
    DEV static void of_queries(const Shared &s, const Tensors &x, const Queries &t)
    {
        Sums dq = {};
        walk_keys<true>(s, x, t, keys_of(t), [&](i32, i32 stage, const Pairs &, const Pairs &ds) {
            Unit::accumulate(dq, ds, s.weights, s.walk_a(stage));
        });
        Unit::template write<Config::dq_quads>(
            dq, x.dq + t.batch_of_q() * x.of_dq.batch + t.head * x.of_dq.head, x.of_dq.time, t.query,
            t.see.rows(), Config::scale, [&](i32 at) { return !t.see.none(at); });
    }

    // ---- Sums over pairs ----

    DEV static u32 units(const AttentionInputs &in, const Tensors &x)
    {
        return Config::starts ? (u32)x.blocks.query_tiles : (u32)(in.extents.batch * in.extents.blocks);
    }
    // Adds up what the pairs of a tile of queries and of blocks of keys give, each to its own sum; by the
    // slope, if `slopes`, else by the score.
    template <bool slopes>
    DEV static void add_pairs(Pairs &sum, const Shared &s, const Tensors &x, const Queries &t, KeyBlocks keys)
    {
        const KeyBlocks range = keys_of(t), both = {max(range.first, keys.first), min(range.end, keys.end)};
        walk_keys<false>(s, x, t, both, [&](i32 b, i32, const Pairs &, const Pairs &ds) {
#pragma unroll
            for (i32 i = 0; i < rows; i++)
#pragma unroll
                for (i32 j = 0; j < walked; j++) {
                    const i32 distance = t.query + row_of(i) + t.see.shift() - (b * bn + walked_of(j));
                    sum[i][j] += slopes ? -ds[i][j] * fabsf((float)distance) : ds[i][j];
                }
        });
    }
    // The sums of a tile, [bm][weight_pitch] in shared memory.
    DEV static void lay_out(const Shared &s, const Pairs &sum)
    {
        __syncthreads();
#pragma unroll
        for (i32 i = 0; i < rows; i++)
#pragma unroll
            for (i32 j = 0; j < walked; j++) s.weights[row_of(i) * weight_pitch + walked_of(j)] = sum[i][j];
        __syncthreads();
    }
    DEV static float total(const Shared &s, i32 i, i32 i_end, i32 j, i32 j_end)
    {
        float sum = 0.0f;
        for (; i < i_end; i++)
            for (i32 at = j; at < j_end; at++) sum += s.weights[i * weight_pitch + at];
        return sum;
    }

    // Writes the part of dbias that the sums are of, from `out` on: rows first .. end - 1, and keys.
    DEV static void write_pairs(const Shared &s, const Tensors &x, float *out, i32 first, i32 end, i32 key,
                                i32 tk)
    {
        constexpr i32 down = Config::dbias_time ? bm : 1, across = Config::dbias_key ? bn : 1;
#pragma unroll 1
        for (i32 e = threadIdx.x; e < down * across; e += threads) {
            const i32 i = e / across, j = e % across;
            const float sum = total(s, Config::dbias_time ? i : 0, Config::dbias_time ? i + 1 : bm,
                                    Config::dbias_key ? j : 0, Config::dbias_key ? j + 1 : bn);
            const bool there =
                (!Config::dbias_time || first + i < end) && (!Config::dbias_key || key + j < tk);
            const i64 row = Config::dbias_time ? (first + i) * x.of_dbias.time : 0;
            if (there) out[row + (Config::dbias_key ? (key + j) * x.of_dbias.key : 0)] = sum;
        }
    }

    DEV static void of_pairs(const Shared &s, const Tensors &x, const AttentionInputs &in, u32 index)
    {
        const u32 key_parts = Config::dbias_key ? x.blocks.walked_tiles : 1, rest = index / key_parts;
        const u32 head_parts = Config::dbias_heads ? Config::heads : 1, of_unit = rest / head_parts;
        const i32 part = index % key_parts, tiles = in.extents.blocks;
        const KeyBlocks keys = {Config::dbias_key ? part : 0,
                                Config::dbias_key ? part + 1 : x.blocks.walked_tiles};
        // Tiles of queries, and every which one: those of a sequence are neighbours.
        u32 first = 0, end = units(in, x), step = 1;
        if (Config::dbias_time) first = of_unit, step = Config::dbias_batch || Config::starts ? end : tiles;
        else if (Config::dbias_batch) first = of_unit * tiles, end = first + tiles;
        const i32 head = Config::dbias_heads ? rest % head_parts : 0;
        // Where no tile is walked, as there are no sequences or no queries, the sums are 0.
        i32 row = (i32)first * bm, row_end = in.extents.tq, batch = Config::dbias_time ? 0 : (i32)of_unit;
        Pairs sum = {};
#pragma unroll 1
        for (u32 unit = first; unit < end; unit += step)
#pragma unroll 1
            for (i32 h = head; h < (Config::dbias_heads ? head + 1 : Config::heads); h++)
                with_tile(in, unit, h, [&](const Queries &t) {
                    row = t.query, row_end = t.see.rows(), batch = (i32)t.batch;
                    add_pairs<false>(sum, s, x, t, keys);
                });
        lay_out(s, sum);
        write_pairs(s, x,
                    x.dbias + (Config::dbias_batch ? batch * x.of_dbias.batch : 0) + head * x.of_dbias.head,
                    row, row_end, part * bn, in.extents.tk);
    }

    // ---- Sums of heads ----

    // The sum of what each thread has, for all of them. `memory` has room for a number of each warp.
    DEV static float block_sum(float x, float *memory)
    {
        x = warp_sum(x);
        __syncthreads();
        if (threadIdx.x % 32 == 0) memory[threadIdx.x / 32] = x;
        __syncthreads();
        float all = 0.0f;
        for (i32 w = 0; w < warps; w++) all += memory[w];
        return all;
    }
    DEV static void of_heads(const Shared &s, const Tensors &x, const AttentionInputs &in, i32 head)
    {
        const KeyBlocks keys = {0, x.blocks.walked_tiles};
        Pairs sum = {};
        float of_sink = 0.0f, of_slope = 0.0f;
#pragma unroll 1
        for (u32 unit = 0; unit < units(in, x); unit++)
            with_tile(in, unit, head, [&](const Queries &t) {
                if (Config::has_dslopes) add_pairs<true>(sum, s, x, t, keys);
                if (Config::has_dsinks) {
                    __syncthreads(); // the last statistics have been read
                    load_statistics<bm>(s.lse(0), s.delta(0), x, t, t.query);
                    __syncthreads();
                    const Score as(in, head);
                    for (i32 r = threadIdx.x; r < bm; r += threads)
                        of_sink += as.of_sink(s.lse(0)[r], s.delta(0)[r]);
                }
            });
#pragma unroll
        for (i32 i = 0; i < rows; i++)
#pragma unroll
            for (i32 j = 0; j < walked; j++) of_slope += sum[i][j];
        if (Config::has_dslopes) of_slope = block_sum(of_slope, s.lse(0));
        if (Config::has_dslopes && threadIdx.x == 0) x.dslopes[head] = of_slope;
        if (Config::has_dsinks) of_sink = block_sum(of_sink, s.lse(0));
        if (Config::has_dsinks && threadIdx.x == 0) x.dsinks[head] = of_sink;
    }

    // ---- All blocks ----

    template <class Block> DEV static void run(const Block &mine, const Tensors &x, const AttentionInputs &in)
    {
        ptx::grid_wait();
        const Shared s(mine.shared());
        u32 index = mine.index();
        if ((Config::has_dk || Config::has_dv) && index < x.blocks.keys) {
            constexpr bool dk = Config::has_dk, dv = Config::has_dv;
            if constexpr (Unit::wide && dk && dv) {
                of_keys<true, false>(s, x, in, index);
                __syncthreads(); // its rows have been read
                of_keys<false, true>(s, x, in, index);
            } else of_keys<dk, dv>(s, x, in, index);
        } else if (index -= x.blocks.keys; Config::has_dq && index < x.blocks.queries) {
            const u32 tile = index / Config::heads, all = x.blocks.queries / Config::heads;
            const u32 unit = Config::starts || !Config::limited ? tile : all - 1 - tile; // the longest begin
            with_tile(in, unit, index % Config::heads, [&](const Queries &t) { of_queries(s, x, t); });
        } else if (index -= x.blocks.queries; Config::has_dbias && index < x.blocks.pairs) {
            of_pairs(s, x, in, index);
        } else if (Config::has_dsinks || Config::has_dslopes) {
            of_heads(s, x, in, index - x.blocks.pairs);
        }
        ptx::grid_launch_next();
    }
};

} // namespace coda
