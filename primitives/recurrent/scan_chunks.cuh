// scan_chunks.cuh -- a selective scan with one decay for a head, by chunks of 64 tokens on tensor cores: the
// state space duality of Mamba-2 (Dao and Gu, arXiv 2405.21060, section 6). With D the sum of d a up to a
// token of the chunk, and S the states at its beginning,
//
//     y_i = e^(D_i) S c_i  +  the sum over j <= i of  (c_i . b_j) e^(D_i - D_j) d_j x_j
//     S'  = e^(D_64) S     +  the sum over j of  e^(D_64 - D_j) d_j x_j b_j^T
//
// Exponents are differences, which are taken before e is raised to them: quotients of powers would be 0 / 0.
// D is a sum of two floats. A block has `slice` columns of a head of a sequence, whose states are fragments
// of m16n8k16 from the first chunk to the last, in fp32: they are rounded to bf16 as an operand of y alone,
// and d x e^(..) is a sum of three bf16, as long as fp32. While a chunk is computed the next one comes.
//
// Whoever writes an element of `after` has read it of `state`: both may be one memory.
//
// Config: as scan_steps.cuh has it, of T bf16; i32 slice, chunk; bool each is false.
#pragma once
#include "map/silu.cuh"
#include "map/softplus.cuh"
#include "port/tile.cuh"
#include "ptx/control.cuh"
#include "ptx/copy.cuh"
#include "ptx/matrix.cuh"
#include "recurrent/scan_tensors.cuh"

namespace coda {

template <class Config> struct ScanChunks {
    typedef typename Config::T T;
    typedef ScanTensors<Config> Tensors;
    static constexpr i32 chunk = Config::chunk, slice = Config::slice, states = Config::states;
    static constexpr i32 warps = chunk / 16, threads = 32 * warps;
    static constexpr i32 slices = Config::head_dim / slice;
    static constexpr i32 pitch = states + 8, x_pitch = slice + 8; // 16 bytes more: other banks for ldmatrix
    // The states of 16 columns are dealt to `parts` warps.
    static constexpr i32 parts = warps / (slice / 16), own = states / parts;
    static_assert(sizeof(T) == 2 && !Config::each && chunk == 64 && threads == Config::threads);
    static_assert(Config::head_dim % slice == 0 && slice % 16 == 0 && warps % (slice / 16) == 0);
    static_assert(states % (16 * parts) == 0);

    struct Stage {
        T b[chunk][pitch], c[chunk][pitch], x[chunk][x_pitch];
    };
    struct Shared {
        Stage stage[2];
        T state[slice][pitch];
        float d[chunk], high[chunk], low[chunk]; // d, and the sum of d a up to a token
    };
    static constexpr i32 shared_bytes = sizeof(Shared);

    typedef float States[own / 8][4];
    typedef float Sums[slice / 8][4];

    struct Place {
        i32 batch, head, column;    // the first one of the slice
        const T *x, *b, *c, *gate;  // of the first row of the sequence's batch, in the slice or the group
        const typename Config::D *dt;
        T *y;
        i64 state; // of the slice's first column
    };

    DEV static i32 lane() { return threadIdx.x % 32; }
    DEV static i32 warp() { return ptx::uniform(threadIdx.x / 32); }

    DEV static Place place(const Tensors &in, u32 index)
    {
        const i32 of = index % (Config::heads * slices), batch = index / (Config::heads * slices);
        const i32 head = of / slices, column = head * Config::head_dim + of % slices * slice;
        const i32 group = head / (Config::heads / Config::groups);
        const i64 at = Config::packed ? 0 : batch;
        return {batch,
                head,
                column,
                in.x + at * in.of_x.batch + column,
                in.b + at * in.of_b.batch + group * states,
                in.c + at * in.of_c.batch + group * states,
                in.gate + (Config::gate ? at * in.of_gate.batch + column : 0),
                in.dt + at * in.of_dt.batch + head,
                in.y + (Config::y ? at * in.of_y.batch + column : 0),
                ((i64)batch * Config::heads * Config::head_dim + column) * states};
    }

    // ---- A chunk of `count` tokens from row `row` on; behind them are zeros ----

    template <i32 n, i32 pitch>
    DEV static void bring(T (&to)[chunk][pitch], const T *from, i64 time, i32 count)
    {
        constexpr i32 pieces = n / 8;
#pragma unroll
        for (i32 e = threadIdx.x; e < chunk * pieces; e += threads) {
            const i32 t = e / pieces, c = e % pieces * 8;
            ptx::copy_async<16>(ptx::shared_address(&to[t][c]), t < count ? from + t * time + c : from,
                                t < count ? 16 : 0);
        }
    }
    DEV static void bring_chunk(const Tensors &in, const Place &at, i32 row, i32 count, Stage &to)
    {
        bring<states>(to.b, at.b + row * in.of_b.time, in.of_b.time, count);
        bring<states>(to.c, at.c + row * in.of_c.time, in.of_c.time, count);
        bring<slice>(to.x, at.x + row * in.of_x.time, in.of_x.time, count);
        ptx::copy_async_commit();
    }

    // The first warp: d of two neighbouring tokens a lane, and the sums of d a, in fp64.
    DEV static void find_steps(const Tensors &in, const Place &at, i32 row, i32 count, Shared &shared)
    {
        if (threadIdx.x >= 32) return;
        const float a = in.a[at.head], bias = Config::bias ? in.bias[at.head] : 0.0f;
        float d[2];
        double sum[2];
#pragma unroll
        for (i32 i = 0; i < 2; i++) {
            const i32 t = 2 * threadIdx.x + i;
            d[i] = 0.0f;
            if (t < count) {
                d[i] = to_float(at.dt[(row + t) * in.of_dt.time]) + bias;
                if (Config::softplus) d[i] = map::softplus::apply(d[i]);
            }
            sum[i] = (double)d[i] * (double)a + (i ? sum[0] : 0.0);
        }
        double before = sum[1];
#pragma unroll
        for (i32 w = 1; w < 32; w *= 2) {
            const i32 from = max((i32)threadIdx.x - w, 0);
            const float high = (float)before, low = (float)(before - (double)high);
            const float h = __shfl_sync(~0u, high, from), l = __shfl_sync(~0u, low, from);
            before += (i32)threadIdx.x < w ? 0.0 : (double)h + (double)l;
        }
        before -= sum[1];
#pragma unroll
        for (i32 i = 0; i < 2; i++) {
            const i32 t = 2 * threadIdx.x + i;
            const double all = before + sum[i];
            shared.d[t] = d[i];
            shared.high[t] = (float)all;
            shared.low[t] = (float)(all - (double)shared.high[t]);
        }
    }

    // e^(D_i - D_j).
    DEV static float decay(const Shared &shared, i32 i, i32 j)
    {
        return math::exp((shared.high[i] - shared.high[j]) + (shared.low[i] - shared.low[j]));
    }

    // ---- Fragments ----

    // The place of [16, 16] elements from (row, column) on for ldmatrix: this lane's row of the four
    // matrices, the second of them below the first, or beside it.
    template <i32 rows, i32 pitch>
    DEV static u32 matrices(const T (&tile)[rows][pitch], i32 row, i32 column, bool below)
    {
        const i32 i = lane() / 8, r = lane() % 8, one = i % 2 * 8, two = i / 2 * 8;
        return ptx::shared_address(&tile[row + r + (below ? one : two)][column + (below ? two : one)]);
    }

    // Which columns and states of the slice the warp has.
    DEV static i32 own_column() { return warp() % (slice / 16) * 16; }
    DEV static i32 own_state() { return warp() / (slice / 16) * own; }
    DEV static i64 element(i32 n, i32 half)
    {
        return (i64)(own_column() + lane() / 4 + 8 * half) * states + own_state() + 8 * n + 2 * (lane() % 4);
    }

    DEV static void load_states(const Tensors &in, const Place &at, States &s)
    {
#pragma unroll
        for (i32 n = 0; n < own / 8; n++)
#pragma unroll
            for (i32 h = 0; h < 2; h++) {
                Pair v = {0.0f, 0.0f};
                if constexpr (Config::state)
                    if (at.batch < in.sequences) v = port::load_pair(in.state + at.state + element(n, h));
                s[n][2 * h] = v.a, s[n][2 * h + 1] = v.b;
            }
    }
    DEV static void store_states(const Tensors &in, const Place &at, const States &s)
    {
        if constexpr (Config::after)
#pragma unroll
            for (i32 n = 0; n < own / 8; n++)
#pragma unroll
                for (i32 h = 0; h < 2; h++)
                    if (at.batch < in.sequences)
                        port::store_pair(in.after + at.state + element(n, h), {s[n][2 * h], s[n][2 * h + 1]});
    }
    DEV static void share_states(const States &s, Shared &shared)
    {
#pragma unroll
        for (i32 n = 0; n < own / 8; n++)
#pragma unroll
            for (i32 h = 0; h < 2; h++)
                port::store_pair(&shared.state[own_column() + lane() / 4 + 8 * h]
                                              [own_state() + 8 * n + 2 * (lane() % 4)],
                                 {s[n][2 * h], s[n][2 * h + 1]});
    }

    // ---- What a chunk adds ----

    // S c of the warp's 16 tokens, times e^D.
    DEV static void add_before(Sums &y, const Stage &of, const Shared &shared)
    {
#pragma unroll
        for (i32 k = 0; k < states; k += 16) {
            u32 a[4];
            ptx::ldmatrix(matrices(of.c, 16 * warp(), k, true), a);
#pragma unroll
            for (i32 p = 0; p < slice; p += 16) {
                u32 b[4];
                ptx::ldmatrix(matrices(shared.state, p, k, false), b);
                ptx::mma<T>(y[p / 8], a, b[0], b[1]);
                ptx::mma<T>(y[p / 8 + 1], a, b[2], b[3]);
            }
        }
#pragma unroll
        for (i32 h = 0; h < 2; h++) {
            const i32 i = 16 * warp() + lane() / 4 + 8 * h;
            const float e = math::exp(shared.high[i] + shared.low[i]);
#pragma unroll
            for (i32 p = 0; p < slice / 8; p++) y[p][2 * h] *= e, y[p][2 * h + 1] *= e;
        }
    }

    // c . b of the warp's tokens and 16 others, weighed: an operand of the product with x.
    DEV static void weigh(u32 (&m)[4], const Stage &of, const Shared &shared, i32 j)
    {
        float g[2][4] = {};
#pragma unroll
        for (i32 k = 0; k < states; k += 16) {
            u32 a[4], b[4];
            ptx::ldmatrix(matrices(of.c, 16 * warp(), k, true), a);
            ptx::ldmatrix(matrices(of.b, j, k, false), b);
            ptx::mma<T>(g[0], a, b[0], b[1]);
            ptx::mma<T>(g[1], a, b[2], b[3]);
        }
#pragma unroll
        for (i32 n = 0; n < 2; n++)
#pragma unroll
            for (i32 h = 0; h < 2; h++) {
                const i32 i = 16 * warp() + lane() / 4 + 8 * h, t = j + 8 * n + 2 * (lane() % 4);
                const float w0 = g[n][2 * h] * decay(shared, i, t) * shared.d[t];
                const float w1 = g[n][2 * h + 1] * decay(shared, i, t + 1) * shared.d[t + 1];
                m[2 * n + h] = pack2<T>(t <= i ? w0 : 0.0f, t < i ? w1 : 0.0f);
            }
    }
    DEV static void add_within(Sums &y, const Stage &of, const Shared &shared)
    {
#pragma unroll 1
        for (i32 j = 0; j <= 16 * warp(); j += 16) {
            u32 m[4];
            weigh(m, of, shared, j);
#pragma unroll
            for (i32 p = 0; p < slice; p += 16) {
                u32 b[4];
                ptx::ldmatrix_transposed(matrices(of.x, j, p, true), b);
                ptx::mma<T>(y[p / 8], m, b[0], b[1]);
                ptx::mma<T>(y[p / 8 + 1], m, b[2], b[3]);
            }
        }
    }

    DEV static void store_rows(const Tensors &in, const Place &at, const Sums &y, const Stage &of, i32 row,
                               i32 count)
    {
        const float skip = Config::skip ? in.skip[at.head] : 0.0f;
#pragma unroll
        for (i32 h = 0; h < 2; h++) {
            const i32 t = 16 * warp() + lane() / 4 + 8 * h, c = 2 * (lane() % 4);
            if (t >= count) continue;
#pragma unroll
            for (i32 p = 0; p < slice / 8; p++) {
                Pair v = {y[p][2 * h], y[p][2 * h + 1]};
                if constexpr (Config::skip) {
                    const Pair x = port::load_pair(&of.x[t][8 * p + c]);
                    v.a = fmaf(skip, x.a, v.a), v.b = fmaf(skip, x.b, v.b);
                }
                if constexpr (Config::gate) {
                    const Pair z = port::load_pair(at.gate + (row + t) * in.of_gate.time + 8 * p + c);
                    v.a *= map::silu::apply(z.a), v.b *= map::silu::apply(z.b);
                }
                port::store_pair(at.y + (row + t) * in.of_y.time + 8 * p + c, v);
            }
        }
    }

    // x times w, as the sum of `terms` bf16, the largest first.
    static constexpr i32 terms = 3;
    DEV static void split(u32 x, float w0, float w1, u32 (&to)[terms][4], i32 i)
    {
        const Pair v = unpack2<T>(x);
        float a = v.a * w0, b = v.b * w1;
#pragma unroll
        for (i32 k = 0; k < terms; k++) {
            to[k][i] = pack2<T>(a, b);
            const Pair h = unpack2<T>(to[k][i]);
            a -= h.a, b -= h.b;
        }
    }

    DEV static void advance(States &s, const Stage &of, const Shared &shared)
    {
        const float all = math::exp(shared.high[chunk - 1] + shared.low[chunk - 1]);
#pragma unroll
        for (i32 n = 0; n < own / 8; n++)
#pragma unroll
            for (i32 i = 0; i < 4; i++) s[n][i] *= all;
#pragma unroll 1
        for (i32 k = 0; k < chunk; k += 16) {
            u32 x[4], of_x[terms][4];
            ptx::ldmatrix_transposed(matrices(of.x, k, own_column(), false), x);
#pragma unroll
            for (i32 h = 0; h < 2; h++) {
                const i32 t = k + 8 * h + 2 * (lane() % 4);
                const float w0 = decay(shared, chunk - 1, t) * shared.d[t],
                            w1 = decay(shared, chunk - 1, t + 1) * shared.d[t + 1];
                split(x[2 * h], w0, w1, of_x, 2 * h);
                split(x[2 * h + 1], w0, w1, of_x, 2 * h + 1);
            }
#pragma unroll
            for (i32 n = 0; n < own; n += 16) {
                u32 b[4];
                ptx::ldmatrix_transposed(matrices(of.b, k, own_state() + n, true), b);
#pragma unroll
                for (i32 i = terms - 1; i >= 0; i--) {
                    ptx::mma<T>(s[n / 8], of_x[i], b[0], b[1]);
                    ptx::mma<T>(s[n / 8 + 1], of_x[i], b[2], b[3]);
                }
            }
        }
    }

    // Rows of no sequence.
    DEV static void clear(const Tensors &in, const Place &at, i32 row, i32 end)
    {
        if constexpr (Config::y && Config::packed)
            for (i32 i = threadIdx.x; i < (end - row) * slice; i += threads)
                at.y[(row + i / slice) * in.of_y.time + i % slice] = from_float<T>(0.0f);
    }

    template <class Block> DEV static void run(const Block &block, const Tensors &in)
    {
        Shared &shared = *reinterpret_cast<Shared *>(block.shared());
        const Place at = place(in, block.index());
        States s;
        ptx::grid_wait();
        const SequenceRows of = in.find_rows(at.batch);
        const i32 first = of.first, end = of.end;
        if (first < end) bring_chunk(in, at, first, min(chunk, end - first), shared.stage[0]);
        load_states(in, at, s);
        if (at.batch == 0) clear(in, at, 0, first);
        if (at.batch + 1 >= in.sequences) clear(in, at, end, in.rows);
#pragma unroll 1
        for (i32 row = first, stage = 0; row < end; row += chunk, stage ^= 1) {
            const i32 count = min(chunk, end - row), next = row + chunk;
            const Stage &now = shared.stage[stage];
            find_steps(in, at, row, count, shared);
            if constexpr (Config::y) share_states(s, shared);
            ptx::copy_async_wait<0>();
            __syncthreads();
            if (next < end) bring_chunk(in, at, next, min(chunk, end - next), shared.stage[stage ^ 1]);
            if constexpr (Config::y) {
                Sums y = {};
                add_before(y, now, shared);
                add_within(y, now, shared);
                store_rows(in, at, y, now, row, count);
            }
            advance(s, now, shared);
            __syncthreads();
        }
        store_states(in, at, s);
        ptx::grid_launch_next();
    }
};

} // namespace coda
