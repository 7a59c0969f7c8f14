// attention_simt.cuh -- attention for any dtype, stride and GPU: plain fp32 multiply-adds.
//
// A block of 4 warps holds bm queries of one head in shared memory and walks over the keys that they can see,
// bn at a time: scores, online softmax, and then the weights times the values. Values arrive while scores are
// computed, the next keys while values are added up.
//
// A query belongs to `lanes` lanes of one warp. Thread (y, x) of a warp owns the queries y + 32 / lanes * i
// of it; of a score tile the keys x + lanes * j, of the result the columns 4 (x + lanes * c) .. + 3. Lanes 2l
// and 2l + 1 have the same x, and lanes of the same parity in a half of the warp the same y: of 16-byte reads
// from shared memory each half of a warp then takes one wavefront for keys and values, and one for queries
// and weights. Weights pass through shared memory, `slice` keys at a time, from the lanes of a query to
// themselves: no other warp waits for them.
//
// Config: types Q K V O; bm bn; {q,k,v,o}_quads (rows.cuh); and as attention_sm90.cuh has it, from heads on,
// but for tiles.
#pragma once
#include "attention/lanes.cuh"
#include "attention/packed.cuh"
#include "attention/pages.cuh"
#include "attention/score.cuh"

namespace coda {

template <class Config> struct AttentionSimt {
    static constexpr i32 bm = Config::bm, bn = Config::bn, head_dim = Config::head_dim;
    typedef coda::Lanes<head_dim, bm> Lanes;
    typedef typename Lanes::Rows Rows;
    static constexpr i32 threads = Lanes::threads, lanes = Lanes::lanes, apart = Lanes::apart;
    static constexpr i32 rows = Lanes::rows, chunks = Lanes::chunks, keys = bn / lanes;
    static constexpr i32 columns = Lanes::columns, pitch = Lanes::pitch;
    static constexpr i32 most = head_dim <= 64 ? 32 : 16, slice = bn < most ? bn : most;
    static constexpr i32 slice_pitch = slice + 8; // lanes of four queries write to 32 banks
    static constexpr i32 shared_floats = (bm + 2 * bn) * pitch + bm * slice_pitch;

    // Is it worth a look whether a warp's queries need a tile?
    static constexpr bool skips = Config::limited || Config::window || Config::ranges || rows < 8;

    // Blocks of an SM, where registers suffice: for sums, scores and a quad of each key, and for the rest.
    static constexpr bool more = skips || Config::starts || Config::page || !Score<Config>::plain;
    static constexpr i32 held = rows * (4 * chunks + keys) + 4 * keys + (more ? 16 : 0) +
                                (Config::starts || Score<Config>::biased ? 16 : 0);
    static constexpr i32 blocks = held <= 128 ? 3 : held <= 192 ? 2 : 1;

    // The largest score so far, the same in all lanes of a query; of the weights this lane's sum.
    struct Row {
        float max, sum;
    };
    struct Strides {
        const AttentionStrides &q, &k, &v, &o;
    };
    // Queries of a sequence, from row `query` of its batch of q on.
    struct Tile {
        const AttentionInputs &in;
        const Visible<Config> &see;
        i64 batch;
        i32 query, head;

        DEV i64 batch_of_q() const { return Config::starts ? 0 : batch; }
        DEV i64 batch_of_k() const { return Config::page ? 0 : batch; }
        DEV i32 kv_head() const { return head / Config::group; }
    };

    DEV static i32 lane_column() { return Lanes::lane_column(); }
    // The row of the tile that is query i of this thread.
    DEV static i32 row_of(i32 i) { return Lanes::row_of(i); }

    // Keys from `key` on, or their values, of those that exist. Of a pool a batch is a page.
    template <bool quads, class T>
    DEV static void load_block(float *to, const T *from, const AttentionStrides &stride, i32 key,
                               const Tile &t)
    {
        Rows::template copy<quads, bn>(to, from, [&](i32 r, i64 &at) {
            if constexpr (Config::page == 0) {
                at = (key + r) * stride.time;
                return key + r < t.see.keys;
            } else {
                const i32 slots = t.in.extents.slots;
                const i32 row = key + r < t.see.keys ? pool_row<Config>(t.in, t.batch, key + r) : slots;
                at = row / Config::page * stride.batch + row % Config::page * stride.time;
                return row < slots;
            }
        });
        ptx::copy_async_commit();
    }

    // What other lanes of a query have.
    DEV static float row_max(float x)
    {
#pragma unroll
        for (i32 d = 2; d < 2 * lanes; d *= 2) x = fmaxf(x, __shfl_xor_sync(~0u, x, d));
        return x;
    }
    DEV static float row_sum(float x)
    {
#pragma unroll
        for (i32 d = 2; d < 2 * lanes; d *= 2) x += __shfl_xor_sync(~0u, x, d);
        return x;
    }
    DEV static float4 quad(const float *p) { return Lanes::quad(p); }
    DEV static void add(float (&sum)[4], float w, float4 x)
    {
        sum[0] = fmaf(w, x.x, sum[0]);
        sum[1] = fmaf(w, x.y, sum[1]);
        sum[2] = fmaf(w, x.z, sum[2]);
        sum[3] = fmaf(w, x.w, sum[3]);
    }

    // Turns a row's scores into exp2 of what they exceed the new maximum by; returns the factor by which
    // older sums shrink. A score not seen weighs nothing, also when no score of the row is seen. They are
    // scaled after the maximum is off: of large scores, scaled and rounded, the difference would be noise.
    template <bool all>
    DEV static float weigh(float (&s)[keys], Row &row, const Score<Config> &as, const BiasRow<Config> &bias,
                           i32 position, i32 key, KeyRange seen)
    {
        float top = row.max, sum = 0.0f;
#pragma unroll
        for (i32 j = 0; j < keys; j++) {
            i32 at = key + lanes * j;
            const bool sees = all || (at >= seen.first && at < seen.end);
            s[j] = sees ? as.of(s[j], position - at, at, bias.of(at)) : unseen();
            top = fmaxf(top, s[j]);
        }
        top = row_max(top);
        const float c = Score<Config>::exponent, base = top == unseen() ? 0.0f : top;
        float factor = math::exp2((row.max - base) * c);
#pragma unroll
        for (i32 j = 0; j < keys; j++) sum += s[j] = math::exp2((s[j] - base) * c);
        row = {top, row.sum * factor + sum};
        return factor;
    }

    // The same of all rows, and o shrinks. If `all`, each row sees all keys.
    template <bool all>
    DEV static void weigh(float (&s)[rows][keys], float (&o)[rows][chunks][4], Row (&row)[rows],
                          const Score<Config> &as, i32 key, const Tile &t)
    {
        const float times = key_scale<Config>(t.in, t.kv_head());
#pragma unroll
        for (i32 i = 0; i < rows; i++) {
            const i32 at = t.query + row_of(i);
            const KeyRange seen = all ? KeyRange{0, 0} : t.see.of(at);
#pragma unroll
            for (i32 j = 0; j < keys && Config::k_scales; j++) s[i][j] *= times;
            const BiasRow<Config> bias(t.in, (i32)t.batch, t.head, min(at, t.see.rows() - 1));
            const float factor =
                weigh<all>(s[i], row[i], as, bias, at + t.see.shift(), key + lane_column(), seen);
#pragma unroll
            for (i32 c = 0; c < chunks; c++)
#pragma unroll
                for (i32 e = 0; e < 4; e++) o[i][c][e] *= factor;
        }
    }

    // o += p v of four keys for the thread's queries and columns. Columns past the last are not written in
    // the end: they take those of the last quad, which is there.
    DEV static void accumulate(float (&o)[rows][chunks][4], const float *p, const float *v)
    {
        float4 w[rows];
#pragma unroll
        for (i32 i = 0; i < rows; i++) w[i] = quad(p + apart * i * slice_pitch);
#pragma unroll
        for (i32 j = 0; j < 4; j++)
#pragma unroll
            for (i32 c = 0; c < chunks; c++) {
                const i32 col = 4 * (lane_column() + lanes * c);
                const float4 x = quad(v + j * pitch + (c + 1 < chunks ? col : min(col, columns - 4)));
#pragma unroll
                for (i32 i = 0; i < rows; i++)
                    add(o[i][c], j == 0 ? w[i].x : j == 1 ? w[i].y : j == 2 ? w[i].z : w[i].w, x);
            }
    }
    // The same of a tile's keys, whose weights are s.
    DEV static void accumulate(float (&o)[rows][chunks][4], const float (&s)[rows][keys], float *weights,
                               const float *v)
    {
        weights += row_of(0) * slice_pitch;
#pragma unroll
        for (i32 first = 0; first < bn; first += slice) {
            __syncwarp(); // the last slice's have been read
#pragma unroll
            for (i32 i = 0; i < rows; i++)
#pragma unroll
                for (i32 j = 0; j < slice / lanes; j++)
                    weights[apart * i * slice_pitch + lane_column() + lanes * j] = s[i][first / lanes + j];
            __syncwarp();
#pragma unroll 1
            for (i32 j = 0; j < slice; j += 4) accumulate(o, weights + j, v + (first + j) * pitch);
        }
    }

    DEV static void write(const float (&o)[rows][chunks][4], const Row (&row)[rows], const Score<Config> &as,
                          typename Config::O *out, i64 stride, const Tile &t)
    {
#pragma unroll
        for (i32 i = 0; i < rows; i++) {
            const i32 at = t.query + row_of(i);
            const bool none = t.see.none(at); // then its sums are 0, or 0 times a NaN that others see
            const float sum = row_sum(row[i].sum), whole = sum + as.sink_weight(row[i].max);
            float inverse = 1.0f / whole;
            if (Config::v_scales) inverse *= value_scale<Config>(t.in, t.kv_head());
            if (at >= t.see.rows()) continue;
            if (Config::lse && lane_column() == 0)
                Score<Config>::store(t.in, t.batch, t.head, at,
                                     none ? unseen() : as.log_sum(row[i].max, sum));
            if (!Config::stored) continue;
#pragma unroll
            for (i32 c = 0; c < chunks; c++) {
                const i32 col = 4 * (lane_column() + lanes * c);
                float x[4];
#pragma unroll
                for (i32 e = 0; e < 4; e++) x[e] = none ? 0.0f : o[i][c][e] * inverse;
                if (!Config::o_quads) port::store_tail(out + at * stride + col, x, 1, head_dim - col);
                else if (col < head_dim) port::store_piece(out + at * stride + col, x);
            }
        }
    }

    template <class Block>
    DEV static void attend(const Block &mine, const typename Config::Q *q, const typename Config::K *k,
                           const typename Config::V *v, typename Config::O *out, const Strides &stride,
                           const Tile &t)
    {
        float *const queries = (float *)mine.shared();
        float *key_tile = queries + bm * pitch, *value_tile = key_tile + bn * pitch;
        float *weights = value_tile + bn * pitch;
        q += t.batch_of_q() * stride.q.batch + t.head * stride.q.head + t.query * stride.q.time;
        k += t.batch_of_k() * stride.k.batch + t.kv_head() * stride.k.head;
        v += t.batch_of_k() * stride.v.batch + t.kv_head() * stride.v.head;

        const i32 limit = t.see.rows(), end = min(t.query + bm, limit), from = t.query + Lanes::first_row();
        Rows::template copy<Config::q_quads, bm>(queries, q, [&](i32 r, i64 &at) {
            at = r * stride.q.time;
            return t.query + r < limit;
        });
        const Score<Config> as(t.in, t.head);
        float o[rows][chunks][4] = {};
        Row row[rows];
#pragma unroll
        for (i32 i = 0; i < rows; i++) row[i] = {unseen(), 0.0f};

        // A warp only brings its share of tiles that none of its queries needs.
        const KeyBlocks range = key_blocks<Config>(t.see, t.query, end - 1);
        const KeyRange common = t.see.common(t.query, end - 1);
        const KeyRange needed =
            from < end ? t.see.some(from, min(from + Lanes::own, end) - 1) : KeyRange{0, 0};
        load_block<Config::k_quads>(key_tile, k, stride.k, range.first * bn, t);
#pragma unroll 1
        for (i32 b = range.first; b < range.end; b++) {
            const i32 key = b * bn;
            const bool needs = !skips || (key < needed.end && key + bn > needed.first);
            float s[rows][keys];
            ptx::copy_async_wait<0>();
            __syncthreads(); // keys have come, and the last values have been read
            load_block<Config::v_quads>(value_tile, v, stride.v, key, t);
            if (needs) {
                Lanes::multiply(s, queries, key_tile);
                if (key >= common.first && key + bn <= common.end) weigh<true>(s, o, row, as, key, t);
                else weigh<false>(s, o, row, as, key, t);
            }
            ptx::copy_async_wait<0>();
            __syncthreads(); // values have come, and keys have been read
            if (b + 1 < range.end) load_block<Config::k_quads>(key_tile, k, stride.k, key + bn, t);
            if (needs) accumulate(o, s, weights, value_tile);
        }
        ptx::copy_async_wait<0>();
        out += t.batch_of_q() * stride.o.batch + t.head * stride.o.head;
        write(o, row, as, out, stride.o.time, t);
    }

    template <class Block>
    DEV static void run(const Block &mine, const typename Config::Q *q, const typename Config::K *k,
                        const typename Config::V *v, typename Config::O *out, const Strides &stride,
                        const AttentionInputs &in)
    {
        ptx::grid_wait();
        const i32 head = mine.index() % Config::heads;
        const u32 tile = mine.index() / Config::heads;
        if constexpr (Config::starts) {
            PackedTile<Config> found;
            if (PackedTiles<Config>().find(in, tile, found))
                attend(mine, q, k, v, out, stride,
                       {in, Visible<Config>(in, found), found.batch, found.query, head});
        } else {
            const u32 tiles = in.extents.blocks, batch = tile / tiles, at = tile % tiles;
            const i32 query = (Config::limited ? tiles - 1 - at : at) * bm; // the longest begin
            attend(mine, q, k, v, out, stride, {in, Visible<Config>(in, batch), batch, query, head});
        }
        ptx::grid_launch_next();
    }
};

} // namespace coda
