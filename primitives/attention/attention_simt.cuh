// attention_simt.cuh -- attention for any dtype, stride and GPU: plain fp32 multiply-adds.
//
// A block of 256 threads holds bm = 16 * rows queries of one head in shared memory and walks over the
// keys it can see, bn = 16 * keys of them at a time: scores, online softmax, then its values through the
// same buffer. Thread (y, x) owns the queries y + 16i; of a score tile the keys x + 16j, of the result
// the columns 4x + 64c .. + 3. A row's 16 threads are neighbours in a warp, so row sums are shuffles.
// The columns are padded with zeros to a multiple of 64; rows of shared memory carry 4 floats more, so
// that 16-byte reads of neighbouring rows do not meet in a bank.
//
// Config: types Q K V O; rows keys; and as attention_sm90.cuh has it, from heads on, but for tiles.
#pragma once
#include "attention/packed.cuh"
#include "attention/pages.cuh"
#include "attention/score.cuh"

namespace coda {

template <class Config> struct AttentionSimt {
    struct Tiled : Config {
        static constexpr i32 bm = 16 * Config::rows, bn = 16 * Config::keys;
    };
    static constexpr i32 rows = Tiled::rows, keys = Tiled::keys, bm = Tiled::bm, bn = Tiled::bn;
    static constexpr i32 threads = 256;
    static constexpr i32 chunks = (Tiled::head_dim + 63) / 64, pitch = 64 * chunks + 4, score_pitch = bn + 4;
    static constexpr i32 shared_floats = (bm + bn) * pitch + bm * score_pitch;

    struct Row {
        float max, sum;
    };
    struct Strides {
        const AttentionStrides &q, &k, &v, &o;
    };

    // Copies `count` rows of head_dim columns, row r from from[r * stride]; rows past `limit` are zero.
    template <class T> DEV static void load_rows(float *to, const T *from, i64 stride, i32 count, i32 limit)
    {
#pragma unroll 4
        for (i32 e = threadIdx.x; e < count * 64 * chunks; e += threads) {
            i32 r = e / (64 * chunks), c = e % (64 * chunks);
            to[r * pitch + c] = r < limit && c < Tiled::head_dim ? load(from + r * stride + c) : 0.0f;
        }
    }

    // The same of a sequence's keys from `key` on, of those that exist. Pages are `page` apart.
    template <class T>
    DEV static void load_block(float *to, const T *from, i64 page, i64 stride, i32 key,
                               const Visible<Tiled> &see, const AttentionInputs &in, i64 batch)
    {
        if constexpr (Tiled::page == 0) {
            load_rows(to, from + key * stride, stride, bn, see.keys - key);
        } else {
#pragma unroll 4
            for (i32 e = threadIdx.x; e < bn * 64 * chunks; e += threads) {
                i32 r = e / (64 * chunks), c = e % (64 * chunks);
                i32 row = key + r < see.keys ? pool_row<Tiled>(in, batch, key + r) : in.extents.slots;
                bool there = row < in.extents.slots && c < Tiled::head_dim;
                const i64 at = row / Tiled::page * page + row % Tiled::page * stride;
                to[r * pitch + c] = there ? load(from + at + c) : 0.0f;
            }
        }
    }

    DEV static float row_max(float x)
    {
        for (i32 d = 1; d < 16; d *= 2) x = fmaxf(x, __shfl_xor_sync(~0u, x, d));
        return x;
    }
    DEV static float row_sum(float x)
    {
        for (i32 d = 1; d < 16; d *= 2) x += __shfl_xor_sync(~0u, x, d);
        return x;
    }
    DEV static float4 quad(const float *p) { return *reinterpret_cast<const float4 *>(p); }
    DEV static float dot(float4 a, float4 b, float sum)
    {
        return fmaf(a.w, b.w, fmaf(a.z, b.z, fmaf(a.y, b.y, fmaf(a.x, b.x, sum))));
    }

    // s[i][j] = q . k for the thread's queries and keys.
    DEV static void scores(float (&s)[rows][keys], const float *q, const float *k)
    {
        i32 y = threadIdx.x / 16, x = threadIdx.x % 16;
        for (i32 i = 0; i < rows; i++)
            for (i32 j = 0; j < keys; j++) s[i][j] = 0.0f;
#pragma unroll 2
        for (i32 c = 0; c < 64 * chunks; c += 4) {
            float4 kv[keys];
#pragma unroll
            for (i32 j = 0; j < keys; j++) kv[j] = quad(k + (x + 16 * j) * pitch + c);
#pragma unroll
            for (i32 i = 0; i < rows; i++) {
                float4 qv = quad(q + (y + 16 * i) * pitch + c);
#pragma unroll
                for (i32 j = 0; j < keys; j++) s[i][j] = dot(qv, kv[j], s[i][j]);
            }
        }
    }

    // Turns a row's scores into exp2 of what they exceed the new maximum by; returns the factor by which
    // older sums shrink. A score not seen weighs nothing, also when no score of the row is seen. They are
    // scaled after the maximum is off: of large scores, scaled and rounded, the difference would be noise.
    DEV static float weigh(float (&s)[keys], Row &row, const Score<Tiled> &as, const BiasRow<Tiled> &bias,
                           i32 position, i32 key, KeyRange seen)
    {
        float top = row.max, sum = 0.0f;
#pragma unroll
        for (i32 j = 0; j < keys; j++) {
            i32 at = key + 16 * j;
            const bool sees = at >= seen.first && at < seen.end;
            s[j] = sees ? as.of(s[j], position - at, at, bias.of(at)) : unseen();
            top = fmaxf(top, s[j]);
        }
        top = row_max(top);
        const float c = Score<Tiled>::exponent, base = top == unseen() ? 0.0f : top;
        float factor = math::exp2((row.max - base) * c);
#pragma unroll
        for (i32 j = 0; j < keys; j++) sum += s[j] = math::exp2((s[j] - base) * c);
        row = {top, row.sum * factor + row_sum(sum)};
        return factor;
    }

    // o += p v for the thread's queries and columns.
    DEV static void accumulate(float (&o)[rows][chunks][4], const float *p, const float *v)
    {
        i32 y = threadIdx.x / 16, x = threadIdx.x % 16;
#pragma unroll 2
        for (i32 j = 0; j < bn; j++) {
            float w[rows];
#pragma unroll
            for (i32 i = 0; i < rows; i++) w[i] = p[(y + 16 * i) * score_pitch + j];
#pragma unroll
            for (i32 c = 0; c < chunks; c++) {
                float4 t = quad(v + j * pitch + 64 * c + 4 * x);
#pragma unroll
                for (i32 i = 0; i < rows; i++) {
                    o[i][c][0] = fmaf(w[i], t.x, o[i][c][0]);
                    o[i][c][1] = fmaf(w[i], t.y, o[i][c][1]);
                    o[i][c][2] = fmaf(w[i], t.z, o[i][c][2]);
                    o[i][c][3] = fmaf(w[i], t.w, o[i][c][3]);
                }
            }
        }
    }

    DEV static void write(const float (&o)[rows][chunks][4], const Row *row, const Visible<Tiled> &see,
                          const Score<Tiled> &as, typename Tiled::O *out, i64 stride,
                          i32 query, const AttentionInputs &in, i64 batch, i32 head)
    {
        i32 y = threadIdx.x / 16, x = threadIdx.x % 16;
#pragma unroll
        for (i32 i = 0; i < rows; i++) {
            i32 at = query + y + 16 * i;
            bool none = see.none(at); // then its sums are 0, or 0 times a NaN that others see
            float whole = row[i].sum + as.sink_weight(row[i].max), inverse = 1.0f / whole;
            if (Tiled::v_scales) inverse *= value_scale<Tiled>(in, head / Tiled::group);
            if (Tiled::lse && x == 0 && at < see.rows())
                Score<Tiled>::store(in, batch, head, at,
                                    none ? unseen() : as.log_sum(row[i].max, row[i].sum));
            if (!Tiled::stored) continue;
#pragma unroll
            for (i32 c = 0; c < chunks; c++)
#pragma unroll
                for (i32 e = 0; e < 4; e++) {
                    i32 col = 64 * c + 4 * x + e;
                    if (at < see.rows() && col < Tiled::head_dim)
                        store(out + at * stride + col, none ? 0.0f : o[i][c][e] * inverse);
                }
        }
    }

    DEV static void run(const typename Tiled::Q *q, const typename Tiled::K *k, const typename Tiled::V *v,
                        typename Tiled::O *out, const Strides &stride, const AttentionInputs &in)
    {
        const u32 tile = blockIdx.x / Tiled::heads;
        if constexpr (Tiled::starts) {
            PackedTile<Tiled> own;
            if (PackedTiles<Tiled>().find(in, tile, own))
                run(q, k, v, out, stride, in, own.batch, own.query, Visible<Tiled>(in, own));
        } else {
            const u32 blocks = in.extents.blocks, batch = tile / blocks;
            run(q, k, v, out, stride, in, batch, tile % blocks * bm, Visible<Tiled>(in, batch));
        }
    }

    // Queries of a sequence, from row `query` of its batch of q on.
    DEV static void run(const typename Tiled::Q *q, const typename Tiled::K *k, const typename Tiled::V *v,
                        typename Tiled::O *out, const Strides &stride, const AttentionInputs &in, i64 batch,
                        i32 query, const Visible<Tiled> &see)
    {
        extern __shared__ __align__(16) float shared[];
        float *queries = shared, *tile = queries + bm * pitch, *weights = tile + bn * pitch;
        i32 y = threadIdx.x / 16, x = threadIdx.x % 16;
        i32 head = blockIdx.x % Tiled::heads;
        const i64 own = Tiled::starts ? 0 : batch; // of q
        const Score<Tiled> as(in, head);
        k += (Tiled::page ? 0 : batch * stride.k.batch) + head / Tiled::group * stride.k.head;
        v += (Tiled::page ? 0 : batch * stride.v.batch) + head / Tiled::group * stride.v.head;

        q += own * stride.q.batch + head * stride.q.head + query * stride.q.time;
        load_rows(queries, q, stride.q.time, bm, see.rows() - query);
        const float times = key_scale<Tiled>(in, head / Tiled::group);
        float o[rows][chunks][4] = {};
        Row row[rows];
#pragma unroll
        for (i32 i = 0; i < rows; i++) row[i] = {unseen(), 0.0f};

        KeyBlocks range = key_blocks<Tiled>(see, query, min(query + bm, see.rows()) - 1);
        for (i32 b = range.first; b < range.end; b++) {
            i32 key = b * bn;
            __syncthreads(); // the last block's values and weights have been read
            load_block(tile, k, stride.k.batch, stride.k.time, key, see, in, batch);
            __syncthreads();
            float s[rows][keys];
            scores(s, queries, tile);
#pragma unroll
            for (i32 i = 0; i < rows; i++) {
                i32 at = query + y + 16 * i;
#pragma unroll
                for (i32 j = 0; j < keys && Tiled::k_scales; j++) s[i][j] *= times;
                const BiasRow<Tiled> bias(in, (i32)batch, head, min(at, see.rows() - 1));
                float factor = weigh(s[i], row[i], as, bias, at + see.shift(), key + x, see.of(at));
#pragma unroll
                for (i32 j = 0; j < keys; j++) weights[(y + 16 * i) * score_pitch + x + 16 * j] = s[i][j];
#pragma unroll
                for (i32 c = 0; c < chunks; c++)
#pragma unroll
                    for (i32 e = 0; e < 4; e++) o[i][c][e] *= factor;
            }
            __syncthreads(); // all scores have been computed
            load_block(tile, v, stride.v.batch, stride.v.time, key, see, in, batch);
            __syncthreads();
            accumulate(o, weights, tile);
        }
        out += own * stride.o.batch + head * stride.o.head;
        write(o, row, see, as, out, stride.o.time, query, in, batch, head);
    }
};

} // namespace coda
