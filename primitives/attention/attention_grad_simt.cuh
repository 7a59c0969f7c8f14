// attention_grad_simt.cuh -- the gradients of attention for any dtype, stride and GPU: plain fp32
// multiply-adds.
//
// One launch has blocks of four kinds, each of which writes results that no other block writes, so that
// nothing is added by atomics and equal inputs give equal bits:
//     keys     bm keys of a key head: they walk the queries of each head that reads them, for dk and dv
//     queries  bm queries of a head: they walk the keys that these see, for dq
//     pairs    bm queries and bn keys of a bias, or what it has of them: they walk what it is for, for dbias
//     heads    a head: they walk all of its queries, and their keys, for dsinks and dslopes
// Scores are made again by each. A block holds its own rows of two tensors in shared memory, and brings
// those that it walks, bn at a time, beside them: k and v of keys, q and do of queries.
//
// Own rows belong to `lanes` lanes of one warp, as in attention_simt.cuh: thread (y, x) of a warp has rows
// y + 32 / lanes * i; of the walked rows x + lanes * j, of a result the columns 4 (x + lanes * c) .. + 3.
// Weights pass through shared memory, from the lanes of a row to themselves.
//
// Config: types Q K V; bm bn; {q,k,v,do,dq,dk,dv}_quads (rows.cuh); has_{dq,dk,dv,dsinks,dbias,dslopes};
// dbias_{batch,heads,time,key}: has dbias more than one element of these; and as attention_sm90.cuh has it,
// from heads on, but for tiles.
#pragma once
#include "attention/packed.cuh"
#include "attention/rows.cuh"
#include "attention/score_grad.cuh"

namespace coda {

// Blocks of each kind; tiles of bm keys of a sequence, and of bn.
struct AttentionGradBlocks {
    i32 keys, queries, pairs, heads, key_tiles, walked_tiles, query_tiles;
};

template <class Config> struct AttentionGradTensors {
    const typename Config::Q *q;
    const typename Config::K *k;
    const typename Config::V *v;
    const typename Config::Q *o, *d_o;
    const float *lse, *dlse;
    typename Config::Q *dq;
    typename Config::K *dk;
    typename Config::V *dv;
    float *dsinks, *dbias, *dslopes;
    const AttentionStrides &of_q, &of_k, &of_v, &of_o, &of_do, &of_lse, &of_dlse, &of_dq, &of_dk, &of_dv;
    const AttentionBias &of_dbias;
    const AttentionGradBlocks &blocks;
};

template <class Config> struct AttentionGradSimt {
    static constexpr i32 bm = Config::bm, bn = Config::bn, head_dim = Config::head_dim;
    static constexpr i32 warps = 4, threads = 32 * warps;
    static constexpr i32 lanes = head_dim <= 256 ? 8 : 16, apart = 32 / lanes;
    static constexpr i32 own = bm / warps, rows = own / apart, walked = bn / lanes;
    static constexpr i32 chunks = (head_dim + 4 * lanes - 1) / (4 * lanes);
    static constexpr i32 kv_heads = Config::heads / Config::group;

    // Registers hold a part of a row of both dk and dv, but of wide heads: these walk their queries for one,
    // and then again for the other.
    static constexpr bool wide = chunks > 8;
    // Blocks of an SM, where registers suffice.
    static constexpr i32 held = rows * ((wide ? 4 : 8) * chunks + 2 * walked) + 4 * walked + 32;
    static constexpr i32 blocks = wide ? 1 : held <= 160 ? 3 : held <= 210 ? 2 : 1;

    typedef coda::Rows<head_dim, threads> Rows;
    typedef AttentionGradTensors<Config> Tensors;
    typedef ScoreGrad<Config> Score;
    static constexpr i32 columns = Rows::columns, pitch = Rows::pitch, weight_pitch = bn + 8;
    static constexpr i32 most = bm > bn ? bm : bn;
    static constexpr i32 shared_floats = 2 * (bm + bn) * pitch + bm * weight_pitch + 2 * most;

    typedef float Pairs[rows][walked];
    typedef float Sums[rows][chunks][4];

    // Own rows and walked ones, of q or k and of do or v; weights; of each query log sum e^s and delta.
    struct Shared {
        float *own_a, *own_b, *walk_a, *walk_b, *weights, *lse, *delta;

        DEV explicit Shared(u8 *memory)
            : own_a((float *)memory), own_b(own_a + bm * pitch), walk_a(own_b + bm * pitch),
              walk_b(walk_a + bn * pitch), weights(walk_b + bn * pitch), lse(weights + bm * weight_pitch),
              delta(lse + most)
        {
        }
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
    DEV static i32 lane_row() { return (threadIdx.x & 1) + threadIdx.x % 32 / (2 * lanes) * 2; } // y
    DEV static i32 lane_column() { return threadIdx.x / 2 % lanes; }                             // x
    DEV static i32 row_of(i32 i) { return own * warp() + lane_row() + apart * i; }
    DEV static i32 walked_of(i32 j) { return lane_column() + lanes * j; }

    DEV static float warp_sum(float x)
    {
#pragma unroll
        for (i32 d = 1; d < 32; d *= 2) x += __shfl_xor_sync(~0u, x, d);
        return x;
    }
    DEV static float4 quad(const float *p) { return *reinterpret_cast<const float4 *>(p); }
    DEV static float dot(float4 a, float4 b, float sum)
    {
        return fmaf(a.w, b.w, fmaf(a.z, b.z, fmaf(a.y, b.y, fmaf(a.x, b.x, sum))));
    }

    // ---- Rows into shared memory ----

    // `count` queries of q and do from `first` on. Those that see nothing are zeros, whatever they are.
    template <i32 count>
    DEV static void load_queries(float *a, float *b, const Tensors &x, const Queries &t, i32 first)
    {
        const typename Config::Q *q = x.q + t.batch_of_q() * x.of_q.batch + t.head * x.of_q.head,
                                 *d_o = x.d_o + t.batch_of_q() * x.of_do.batch + t.head * x.of_do.head;
        Rows::template copy<Config::q_quads, count>(a, q, [&](i32 r, i64 &at) {
            at = (first + r) * x.of_q.time;
            return t.has(first + r);
        });
        Rows::template copy<Config::do_quads, count>(b, d_o, [&](i32 r, i64 &at) {
            at = (first + r) * x.of_do.time;
            return t.has(first + r);
        });
        ptx::copy_async_commit();
    }
    template <i32 count>
    DEV static void load_keys(float *a, float *b, const Tensors &x, i64 batch, i32 kv_head, i32 first,
                              i32 end)
    {
        const typename Config::K *k = x.k + batch * x.of_k.batch + kv_head * x.of_k.head;
        const typename Config::V *v = x.v + batch * x.of_v.batch + kv_head * x.of_v.head;
        Rows::template copy<Config::k_quads, count>(a, k, [&](i32 r, i64 &at) {
            at = (first + r) * x.of_k.time;
            return first + r < end;
        });
        Rows::template copy<Config::v_quads, count>(b, v, [&](i32 r, i64 &at) {
            at = (first + r) * x.of_v.time;
            return first + r < end;
        });
        ptx::copy_async_commit();
    }
    // Of each query log sum e^s, -inf if it sees nothing, and delta = sum(do o) - dlse.
    DEV static void load_statistics(const Shared &s, const Tensors &x, const Queries &t, i32 first, i32 count)
    {
        const i32 lane = threadIdx.x % 32;
        const i64 batch = t.batch_of_q();
#pragma unroll 1
        for (i32 r = warp(); r < count; r += warps) {
            const i32 at = first + r;
            const bool there = t.has(at);
            float sum = 0.0f, lse = unseen();
            const typename Config::Q *o = x.o + batch * x.of_o.batch + t.head * x.of_o.head,
                                     *d_o = x.d_o + batch * x.of_do.batch + t.head * x.of_do.head;
#pragma unroll 4
            for (i32 c = lane; c < head_dim; c += 32)
                if (there) sum = fmaf(load(d_o + at * x.of_do.time + c), load(o + at * x.of_o.time + c), sum);
            sum = warp_sum(sum);
            if (there) lse = x.lse[batch * x.of_lse.batch + t.head * x.of_lse.head + at * x.of_lse.time];
            if (there && x.dlse)
                sum -= x.dlse[batch * x.of_dlse.batch + t.head * x.of_dlse.head + at * x.of_dlse.time];
            if (lane == 0) s.lse[r] = lse, s.delta[r] = sum;
        }
    }

    // ---- Products ----

    DEV static void multiply(Pairs &p, const float *a, const float *b)
    {
        a += row_of(0) * pitch, b += lane_column() * pitch;
#pragma unroll
        for (i32 i = 0; i < rows; i++)
#pragma unroll
            for (i32 j = 0; j < walked; j++) p[i][j] = 0.0f;
#pragma unroll 1
        for (i32 c = 0; c < columns; c += 4) {
            float4 w[walked];
#pragma unroll
            for (i32 j = 0; j < walked; j++) w[j] = quad(b + lanes * j * pitch + c);
#pragma unroll
            for (i32 i = 0; i < rows; i++) {
                const float4 v = quad(a + apart * i * pitch + c);
#pragma unroll
                for (i32 j = 0; j < walked; j++) p[i][j] = dot(v, w[j], p[i][j]);
            }
        }
    }
    // o += w x, of the walked rows x. Columns past the last take those of the last quad, which is there.
    DEV static void accumulate(Sums &o, const Pairs &w, float *weights, const float *x)
    {
        weights += row_of(0) * weight_pitch;
        __syncwarp(); // the last ones have been read
#pragma unroll
        for (i32 i = 0; i < rows; i++)
#pragma unroll
            for (i32 j = 0; j < walked; j++) weights[apart * i * weight_pitch + walked_of(j)] = w[i][j];
        __syncwarp();
#pragma unroll 1
        for (i32 j = 0; j < bn; j++, x += pitch) {
            float own_weight[rows];
#pragma unroll
            for (i32 i = 0; i < rows; i++) own_weight[i] = weights[apart * i * weight_pitch + j];
#pragma unroll
            for (i32 c = 0; c < chunks; c++) {
                const i32 col = 4 * walked_of(c);
                const float4 v = quad(x + (c + 1 < chunks ? col : min(col, columns - 4)));
#pragma unroll
                for (i32 i = 0; i < rows; i++) {
                    o[i][c][0] = fmaf(own_weight[i], v.x, o[i][c][0]);
                    o[i][c][1] = fmaf(own_weight[i], v.y, o[i][c][1]);
                    o[i][c][2] = fmaf(own_weight[i], v.z, o[i][c][2]);
                    o[i][c][3] = fmaf(own_weight[i], v.w, o[i][c][3]);
                }
            }
        }
    }

    // What one query and key make: of q . k and do . v their weight in p, and in ds the derivative by the
    // score, or, if `by_product`, by scale q . k. `query` counts from `first` in the statistics.
    template <bool by_product>
    DEV static void weigh(float &p, float &ds, const Score &as, const Shared &s, const Queries &t,
                          const BiasRow<Config> &bias, KeyRange seen, i32 query, i32 first, i32 key)
    {
        const bool sees = query < t.see.rows() && key >= seen.first && key < seen.end;
        const i32 at = query - first;
        const typename Score::Pair made =
            as.of(p, ds, query + t.see.shift() - key, sees ? bias.of(key) : 0.0f, s.lse[at], s.delta[at]);
        p = sees ? made.p : 0.0f;
        ds = !sees ? 0.0f : by_product ? made.dr : made.ds;
    }
    // Own rows are queries from `query` on, the walked ones keys from `key` on; or the other way round.
    template <bool own_queries, bool by_product>
    DEV static void weigh(Pairs &p, Pairs &ds, const Score &as, const Shared &s, const Queries &t, i32 query,
                          i32 key)
    {
        constexpr i32 outer = own_queries ? rows : walked, inner = own_queries ? walked : rows;
#pragma unroll
        for (i32 a = 0; a < outer; a++) {
            const i32 at = query + (own_queries ? row_of(a) : walked_of(a)), row = min(at, t.see.rows() - 1);
            const KeyRange seen = t.see.of(at);
            const BiasRow<Config> bias(t.in, (i32)t.batch, t.head, row);
#pragma unroll
            for (i32 b = 0; b < inner; b++) {
                const i32 i = own_queries ? a : b, j = own_queries ? b : a;
                weigh<by_product>(p[i][j], ds[i][j], as, s, t, bias, seen, at, query,
                                  key + (own_queries ? walked_of(b) : row_of(b)));
            }
        }
    }

    template <bool quads, class T>
    DEV static void write(const Sums &o, T *out, i64 time, i32 first, i32 end, i32 there, float scale)
    {
#pragma unroll
        for (i32 i = 0; i < rows; i++) {
            const i32 at = first + row_of(i);
            if (at >= end) continue;
#pragma unroll
            for (i32 c = 0; c < chunks; c++) {
                const i32 col = 4 * walked_of(c);
                float x[4];
#pragma unroll
                for (i32 e = 0; e < 4; e++) x[e] = at < there ? o[i][c][e] * scale : 0.0f;
                if (!quads) port::store_tail(out + at * time + col, x, 1, head_dim - col);
                else if (col < head_dim) port::store_piece(out + at * time + col, x);
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

    template <bool has_dk, bool has_dv>
    DEV static void walk_queries(const Shared &s, const Tensors &x, const Queries &t, i32 key, Sums &dk,
                                 Sums &dv)
    {
        const Score as(t.in, t.head);
        const i32 end = t.see.rows();
#pragma unroll 1
        for (i32 query = t.query; query < end; query += bn) {
            const KeyRange seen = t.see.some(query, min(query + bn, end) - 1);
            if (seen.end <= key || seen.first >= key + bm) continue;
            Pairs p, ds;
            __syncthreads(); // the last queries have been read
            load_queries<bn>(s.walk_a, s.walk_b, x, t, query);
            load_statistics(s, x, t, query, bn);
            ptx::copy_async_wait<0>();
            __syncthreads();
            multiply(p, s.own_a, s.walk_a);
            multiply(ds, s.own_b, s.walk_b);
            weigh<false, true>(p, ds, as, s, t, query, key);
            if (has_dv) accumulate(dv, p, s.weights, s.walk_b);
            if (has_dk) accumulate(dk, ds, s.weights, s.walk_a);
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
        if (has_dk)
            write<Config::dk_quads>(dk, x.dk + batch * x.of_dk.batch + kv_head * x.of_dk.head, x.of_dk.time,
                                    key, in.extents.tk, t.see.keys, Config::scale);
        if (has_dv)
            write<Config::dv_quads>(dv, x.dv + batch * x.of_dv.batch + kv_head * x.of_dv.head, x.of_dv.time,
                                    key, in.extents.tk, t.see.keys, 1.0f);
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
    DEV static void hold_queries(const Shared &s, const Tensors &x, const Queries &t)
    {
        __syncthreads(); // those before them have been read
        load_queries<bm>(s.own_a, s.own_b, x, t, t.query);
        load_statistics(s, x, t, t.query, bm);
    }
    // Makes pairs of the queries that it holds and bn keys.
    template <bool by_product>
    DEV static void meet_keys(const Shared &s, const Tensors &x, const Queries &t, i32 key, Pairs &p,
                              Pairs &ds)
    {
        __syncthreads(); // the last keys have been read
        load_keys<bn>(s.walk_a, s.walk_b, x, t.batch, t.kv_head(), key, t.see.keys);
        ptx::copy_async_wait<0>();
        __syncthreads();
        multiply(p, s.own_a, s.walk_a);
        multiply(ds, s.own_b, s.walk_b);
        weigh<true, by_product>(p, ds, Score(t.in, t.head), s, t, t.query, key);
    }
    DEV static KeyBlocks keys_of(const Queries &t)
    {
        return key_blocks<Config>(t.see, t.query, min(t.query + bm, t.see.rows()) - 1);
    }

    // A row that sees nothing shares its tile with others: its weights are 0, but what they meet may be NaN.
    DEV static void of_queries(const Shared &s, const Tensors &x, const Queries &t)
    {
        Sums dq = {};
        const KeyBlocks range = keys_of(t);
        if (range.first < range.end) hold_queries(s, x, t);
#pragma unroll 1
        for (i32 b = range.first; b < range.end; b++) {
            Pairs p, ds;
            meet_keys<true>(s, x, t, b * bn, p, ds);
            accumulate(dq, ds, s.weights, s.walk_a);
        }
#pragma unroll
        for (i32 i = 0; i < rows; i++) {
            const i32 at = t.query + row_of(i);
            const bool there = t.has(min(at, t.see.rows() - 1));
#pragma unroll
            for (i32 c = 0; c < chunks; c++)
#pragma unroll
                for (i32 e = 0; e < 4; e++) dq[i][c][e] = there ? dq[i][c][e] : 0.0f;
        }
        write<Config::dq_quads>(dq, x.dq + t.batch_of_q() * x.of_dq.batch + t.head * x.of_dq.head,
                                x.of_dq.time, t.query, t.see.rows(), t.see.rows(), Config::scale);
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
        const KeyBlocks range = keys_of(t);
        const i32 first = max(range.first, keys.first), end = min(range.end, keys.end);
        if (first < end) hold_queries(s, x, t);
#pragma unroll 1
        for (i32 b = first; b < end; b++) {
            Pairs p, ds;
            meet_keys<false>(s, x, t, b * bn, p, ds);
#pragma unroll
            for (i32 i = 0; i < rows; i++)
#pragma unroll
                for (i32 j = 0; j < walked; j++) {
                    const i32 distance = t.query + row_of(i) + t.see.shift() - (b * bn + walked_of(j));
                    sum[i][j] += slopes ? -ds[i][j] * fabsf((float)distance) : ds[i][j];
                }
        }
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
        i32 row = 0, row_end = 0, batch = 0;
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

    DEV static void of_heads(const Shared &s, const Tensors &x, const AttentionInputs &in, i32 head)
    {
        const KeyBlocks keys = {0, x.blocks.walked_tiles};
        Pairs sum = {};
        float of_sink = 0.0f;
#pragma unroll 1
        for (u32 unit = 0; unit < units(in, x); unit++)
            with_tile(in, unit, head, [&](const Queries &t) {
                if (Config::has_dslopes) add_pairs<true>(sum, s, x, t, keys);
                if (Config::has_dsinks) {
                    __syncthreads(); // the last statistics have been read
                    load_statistics(s, x, t, t.query, bm);
                    __syncthreads();
                    const Score as(in, head);
                    for (i32 r = threadIdx.x; r < bm; r += threads)
                        of_sink += as.of_sink(s.lse[r], s.delta[r]);
                }
            });
        if (Config::has_dslopes) {
            lay_out(s, sum);
            for (i32 i = threadIdx.x; i < bm; i += threads) s.lse[i] = total(s, i, i + 1, 0, bn);
            __syncthreads();
            float all = 0.0f;
            for (i32 i = 0; i < bm; i++) all += s.lse[i];
            if (threadIdx.x == 0) x.dslopes[head] = all;
        }
        if (Config::has_dsinks) {
            __syncthreads();
            of_sink = warp_sum(of_sink);
            if (threadIdx.x % 32 == 0) s.weights[threadIdx.x / 32] = of_sink;
            __syncthreads();
            float all = 0.0f;
            for (i32 w = 0; w < warps; w++) all += s.weights[w];
            if (threadIdx.x == 0) x.dsinks[head] = all;
        }
    }

    // ---- All blocks ----

    template <class Block> DEV static void run(const Block &mine, const Tensors &x, const AttentionInputs &in)
    {
        ptx::grid_wait();
        const Shared s(mine.shared());
        u32 index = mine.index();
        if ((Config::has_dk || Config::has_dv) && index < x.blocks.keys) {
            constexpr bool dk = Config::has_dk, dv = Config::has_dv;
            if constexpr (wide && dk && dv) {
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
