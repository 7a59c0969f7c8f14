// delta.cuh -- the gated delta rule (arXiv 2412.06464), token by token:
//
//     S = e^decay S,    e = beta (v - k S),    S = S + k^T e,    o = scale q S = scale (q S' + (q k^T) e)
//
// where S' is S ahead of the token, decayed. Columns of S do not know each other: a block has 32 of a head's,
// a lane each, and a warp some of its rows, in registers from the first token to the last. So a state is read
// and written once. Both products with S' are sums over the warps, in their order, so a token costs one
// meeting of the block. Tokens come into shared memory `many` at a time, and norms are factors of the sums.
//
// Config: types T (of q, k, v, o), Decay, Beta, Before, After, Index (of starts); i32 keys, values, heads,
// group (heads of a key head), rows (of a warp), warps; bool by_row, norm, o, before, after, packed; float
// scale, eps; i64 starts_stride.
#pragma once
#include "math.cuh"
#include "recurrent/delta_tensors.cuh"
#include "tile/block.cuh"

namespace coda {

template <class Config> struct Delta {
    typedef typename Config::T T;
    typedef typename Config::Index Index;
    static constexpr i32 keys = Config::keys, values = Config::values, heads = Config::heads;
    static constexpr i32 rows = Config::rows, warps = Config::warps, threads = 32 * warps;
    static constexpr i32 padded = rows * warps, many = 8, slices = (values + 31) / 32;
    static constexpr i32 decays = Config::by_row ? padded : 1;
    static_assert(rows % 4 == 0 && padded >= keys);

    typedef DeltaTensors<Config> Tensors;
    struct alignas(16) Shared {
        float k[many][padded], q[many][padded], factor[many][decays], v[many][32];
        float beta[many], scale_k[many], scale_q[many], kq[many];
        float part[2][warps][2][32];
    };
    // What a thread has of a head's state: `rows` rows of one column.
    struct Column {
        u32 head, index; // of the head's values
        bool any;
        float s[rows];
    };

    DEV static i32 first_row() { return threadIdx.x / 32 * rows; }

    template <class U> DEV static void load_state(Column &c, const U *p, const StateStrides &of, i64 batch)
    {
        p += batch * of.batch + c.head * of.head + c.index;
#pragma unroll
        for (i32 i = 0; i < rows; i++) {
            const i32 r = first_row() + i;
            c.s[i] = Config::before && c.any && r < keys ? load(p + r * of.row) : 0.0f;
        }
    }
    template <class U> DEV static void store_state(const Column &c, U *p, const StateStrides &of, i64 batch)
    {
        p += batch * of.batch + c.head * of.head + c.index;
#pragma unroll
        for (i32 i = 0; i < rows; i++) {
            const i32 r = first_row() + i;
            if (c.any && r < keys) store(p + r * of.row, c.s[i]);
        }
    }

    // Rows t..t + n - 1, of which k and q are padded with zeros.
    DEV static void load_tokens(const Tensors &a, const Column &c, i64 batch, u32 t, u32 n, Shared &shared)
    {
        const T *const q = a.q + batch * a.of_q.batch + c.head / Config::group * keys;
        const T *const k = a.k + batch * a.of_k.batch + c.head / Config::group * keys;
#pragma unroll 2
        for (u32 i = threadIdx.x; i < n * padded; i += threads) {
            const u32 row = i / padded, column = i % padded;
            const bool any = column < keys;
            shared.q[row][column] = any ? load(q + (t + row) * a.of_q.time + column) : 0.0f;
            shared.k[row][column] = any ? load(k + (t + row) * a.of_k.time + column) : 0.0f;
        }
        const auto *const decay = a.decay + batch * a.of_decay.batch + c.head * (Config::by_row ? keys : 1);
#pragma unroll 1
        for (u32 i = threadIdx.x; i < n * decays; i += threads) {
            const u32 row = i / decays, column = i % decays;
            const bool any = !Config::by_row || column < keys;
            shared.factor[row][column] =
                any ? math::exp(load(decay + (t + row) * a.of_decay.time + column)) : 0.0f;
        }
        const T *const v = a.v + batch * a.of_v.batch + c.head * values + c.index;
#pragma unroll 1
        for (u32 i = threadIdx.x / 32; i < n; i += warps)
            shared.v[i][threadIdx.x % 32] = c.any ? load(v + (t + i) * a.of_v.time) : 0.0f;
        if (threadIdx.x < n)
            shared.beta[threadIdx.x] =
                load(a.beta + batch * a.of_beta.batch + (t + threadIdx.x) * a.of_beta.time + c.head);
    }

    DEV static float sum_lanes(float x)
    {
#pragma unroll
        for (i32 d = 1; d < 32; d *= 2) x += __shfl_xor_sync(~0u, x, d);
        return x;
    }
    // A warp has a token: what its k and q are multiplied by, and k q.
    DEV static void measure(u32 n, Shared &shared)
    {
#pragma unroll 1
        for (u32 t = threadIdx.x / 32; t < n; t += warps) {
            float kk = 0.0f, qq = 0.0f, kq = 0.0f;
            for (i32 i = threadIdx.x % 32; i < padded; i += 32) {
                const float k = shared.k[t][i], q = shared.q[t][i];
                kk = fmaf(k, k, kk), qq = fmaf(q, q, qq), kq = fmaf(k, q, kq);
            }
            kk = sum_lanes(kk), qq = sum_lanes(qq), kq = sum_lanes(kq);
            const float of_k = Config::norm ? math::rsqrt(kk + Config::eps) : 1.0f;
            const float of_q = Config::scale * (Config::norm ? math::rsqrt(qq + Config::eps) : 1.0f);
            if (threadIdx.x % 32 == 0)
                shared.scale_k[t] = of_k, shared.scale_q[t] = of_q, shared.kq[t] = kq * of_k * of_q;
        }
    }

    // Token t of those in shared memory; o of the thread's column.
    DEV static float step(Column &c, u32 t, Shared &shared)
    {
        const u32 warp = threadIdx.x / 32, lane = threadIdx.x % 32, turn = t % 2;
        const float *const k = shared.k[t] + first_row(), *const q = shared.q[t] + first_row();
        const float *const factor = shared.factor[t] + (Config::by_row ? first_row() : 0);
        float of_k = 0.0f, of_q = 0.0f;
#pragma unroll
        for (i32 i = 0; i < rows; i++) {
            c.s[i] *= factor[Config::by_row ? i : 0];
            of_k = fmaf(c.s[i], k[i], of_k), of_q = fmaf(c.s[i], q[i], of_q);
        }
        shared.part[turn][warp][0][lane] = of_k, shared.part[turn][warp][1][lane] = of_q;
        __syncthreads();
        of_k = of_q = 0.0f;
#pragma unroll
        for (i32 w = 0; w < warps; w++)
            of_k += shared.part[turn][w][0][lane], of_q += shared.part[turn][w][1][lane];
        const float e = shared.beta[t] * (shared.v[t][lane] - of_k * shared.scale_k[t]);
        const float along = e * shared.scale_k[t];
#pragma unroll
        for (i32 i = 0; i < rows; i++) c.s[i] = fmaf(k[i], along, c.s[i]);
        return fmaf(e, shared.kq[t], of_q * shared.scale_q[t]);
    }

    DEV static PackedSequences<Index> packed(const Tensors &a)
    {
        return {a.starts, Config::starts_stride, a.sequences, a.time};
    }

    DEV static void run_sequence(const Tensors &a, Column &c, u32 b, Shared &shared)
    {
        SequenceRows of = {(i32)b, 0, a.time};
        if constexpr (Config::packed) of = packed(a).rows_of(b);
        const i64 batch = Config::packed ? 0 : b;
        T *const o = a.o + batch * a.of_o.batch + c.head * values + c.index;
        load_state(c, a.before, a.of_before, b);
#pragma unroll 1
        for (u32 t = of.first; t < of.end; t += many) {
            const u32 n = of.end - t < many ? of.end - t : many;
            __syncthreads(); // the tokens before are done with
            load_tokens(a, c, batch, t, n, shared);
            __syncthreads();
            measure(n, shared);
            __syncthreads();
#pragma unroll 1
            for (u32 i = 0; i < n; i++) {
                const float y = step(c, i, shared);
                if (Config::o && c.any && threadIdx.x / 32 == i % warps) store(o + (t + i) * a.of_o.time, y);
            }
        }
        if constexpr (Config::after) store_state(c, a.after, a.of_after, b);
    }

    // Rows of no sequence.
    DEV static void clear(const Tensors &a, const Column &c)
    {
        const u32 first = a.sequences ? packed(a).rows_of(0).first : a.time;
        const u32 end = a.sequences ? packed(a).rows_of(a.sequences - 1).end : a.time;
        T *const o = a.o + c.head * values + c.index;
#pragma unroll 1
        for (u32 t = threadIdx.x / 32; t < a.time && Config::o && c.any; t += warps)
            if (t < first || t >= end) store(o + t * a.of_o.time, 0.0f);
    }

    template <class Block> DEV static void run(const Block &block, const Tensors &a)
    {
        Shared &shared = *(Shared *)block.shared();
        const i64 all = (i64)(a.sequences + Config::packed) * heads * slices;
        for (i64 item = block.index(); item < all; item += block.count()) {
            const u32 b = (u32)(item / (heads * slices));
            Column c;
            c.head = (u32)(item / slices % heads);
            c.index = (u32)(item % slices) * 32 + threadIdx.x % 32;
            c.any = c.index < values;
            if (b < a.sequences) run_sequence(a, c, b, shared);
            else clear(a, c);
        }
    }
};

} // namespace coda
