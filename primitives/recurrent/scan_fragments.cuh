// scan_fragments.cuh -- what the kernels have in common that take a selective scan by chunks of 64 tokens on
// tensor cores: which columns a block has, how rows come, and the states of its columns as fragments of
// m16n8k16. The states of 16 columns are dealt to `parts` warps, which are numbered from 0 on here.
#pragma once
#include "map/silu.cuh"
#include "port/tile.cuh"
#include "ptx/control.cuh"
#include "ptx/copy.cuh"
#include "ptx/matrix.cuh"
#include "recurrent/scan_tensors.cuh"

namespace coda {

template <class Config, i32 parts> struct ScanFragments {
    typedef typename Config::T T;
    typedef ScanTensors<Config> Tensors;
    static constexpr i32 chunk = Config::chunk, slice = Config::slice, states = Config::states;
    static constexpr i32 slices = Config::head_dim / slice, own = states / parts;
    static constexpr i32 pitch = states + 8, x_pitch = slice + 8; // 16 bytes more: other banks for ldmatrix
    static_assert(sizeof(T) == 2 && !Config::each && chunk == 64);
    static_assert(Config::head_dim % slice == 0 && slice % 16 == 0 && states % (16 * parts) == 0);

    typedef float States[own / 8][4];
    typedef float Sums[slice / 8][4];
    struct Stage {
        T b[chunk][pitch], c[chunk][pitch], x[chunk][x_pitch];
    };

    // Of a chunk's tokens: D, in units of log 2, as two floats; d; e^D, and what d x counts in the states
    // behind the chunk.
    struct alignas(16) Steps {
        float high[chunk], low[chunk], d[chunk], before[chunk], behind[chunk], all; // e^D of the last one
    };
    struct Place {
        i32 batch, head, column;   // the first one of the slice
        const T *x, *b, *c, *gate; // of the first row of the sequence's batch, in the slice or the group
        const typename Config::D *dt;
        T *y;
        i64 state; // of the slice's first column
    };

    DEV static i32 lane() { return threadIdx.x % 32; }

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

    // Each thread has a piece of every `once`th row.
    template <bool whole, i32 n, i32 pitch>
    DEV static void bring(T (&to)[chunk][pitch], const T *from, i64 time, i32 count)
    {
        constexpr i32 pieces = n / 8, once = Config::threads / pieces;
        const i32 first = threadIdx.x / pieces, c = threadIdx.x % pieces * 8;
        const T *row = from + first * time + c;
        const u32 at = ptx::shared_address(&to[first][c]);
        if (once * pieces < Config::threads && first >= once) return;
#pragma unroll
        for (i32 i = 0; i < (chunk + once - 1) / once; i++, row += once * time) {
            const bool there = whole || first + i * once < count;
            if (chunk % once == 0 || first + i * once < chunk)
                ptx::copy_async<16>(at + i * once * pitch * 2, there ? row : from, there ? 16 : 0);
        }
    }
    template <bool whole>
    DEV static void bring_rows(const Tensors &in, const Place &at, i32 row, i32 count, Stage &to)
    {
        bring<whole, states>(to.b, at.b + row * in.of_b.time, in.of_b.time, count);
        bring<whole, states>(to.c, at.c + row * in.of_c.time, in.of_c.time, count);
        bring<whole, slice>(to.x, at.x + row * in.of_x.time, in.of_x.time, count);
    }
    DEV static void bring_chunk(const Tensors &in, const Place &at, i32 row, i32 count, Stage &to)
    {
        if (count == chunk) bring_rows<true>(in, at, row, count, to);
        else bring_rows<false>(in, at, row, count, to);
        ptx::copy_async_commit();
    }

    // ---- Steps: of two neighbouring tokens a lane ----

    struct Step {
        float dt[2]; // as it is in memory
    };
    DEV static Step load_step(const Tensors &in, const Place &at, i32 row, i32 end)
    {
        Step s;
#pragma unroll
        for (i32 i = 0; i < 2; i++) {
            const i32 t = row + 2 * lane() + i;
            s.dt[i] = t < end ? to_float(at.dt[t * in.of_dt.time]) : 0.0f;
        }
        return s;
    }
    // Sums in fp64. A token behind the last one is none: its d is 0.
    DEV static void find_steps(const Step &s, float a, float bias, i32 count, Steps &to)
    {
        float d[2];
        double sum[2];
#pragma unroll
        for (i32 i = 0; i < 2; i++) {
            d[i] = 2 * lane() + i < count ? Tensors::make_step(s.dt[i], bias) : 0.0f;
            sum[i] = (double)d[i] * ((double)a * 1.4426950408889634) + (i ? sum[0] : 0.0);
        }
        double before = sum[1];
#pragma unroll
        for (i32 w = 1; w < 32; w *= 2) {
            const float high = (float)before, low = (float)(before - (double)high);
            const i32 from = max(lane() - w, 0);
            const float h = __shfl_sync(~0u, high, from), l = __shfl_sync(~0u, low, from);
            before += lane() < w ? 0.0 : (double)h + (double)l;
        }
        const float last_high = __shfl_sync(~0u, (float)before, 31);
        const float last_low = __shfl_sync(~0u, (float)(before - (double)(float)before), 31);
        before -= sum[1];
#pragma unroll
        for (i32 i = 0; i < 2; i++) {
            const i32 t = 2 * lane() + i;
            const double all = before + sum[i];
            const float high = (float)all, low = (float)(all - (double)high);
            to.d[t] = d[i], to.high[t] = high, to.low[t] = low;
            to.before[t] = math::exp2(high + low);
            to.behind[t] = math::exp2((last_high - high) + (last_low - low)) * d[i];
        }
        if (lane() == 0) to.all = math::exp2(last_high + last_low);
    }

    // D of a token, or of two neighbours and their d.
    struct Decay {
        float high, low;
    };
    struct DecayPair {
        Pair high, low, d;
    };
    DEV static Decay decay_of(const Steps &of, i32 i) { return {of.high[i], of.low[i]}; }
    DEV static DecayPair decays_of(const Steps &of, i32 j)
    {
        return {port::load_pair(&of.high[j]), port::load_pair(&of.low[j]), port::load_pair(&of.d[j])};
    }
    // What x of tokens j and j + 1 counts in y of token i, whose products with c are g and h.
    DEV static Pair weights(float g, float h, const Decay &row, const DecayPair &of, i32 i, i32 j)
    {
        const float e = math::exp2((row.high - of.high.a) + (row.low - of.low.a));
        const float f = math::exp2((row.high - of.high.b) + (row.low - of.low.b));
        return {j <= i ? g * e * of.d.a : 0.0f, j < i ? h * f * of.d.b : 0.0f};
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

    // Which columns and states of the slice a warp has.
    DEV static i32 own_column(i32 warp) { return warp % (slice / 16) * 16; }
    DEV static i32 own_state(i32 warp) { return warp / (slice / 16) * own; }
    DEV static i64 element(i32 warp, i32 n, i32 half)
    {
        return (i64)(own_column(warp) + lane() / 4 + 8 * half) * states + own_state(warp) + 8 * n +
               2 * (lane() % 4);
    }

    DEV static void load_states(const Tensors &in, const Place &at, i32 warp, States &s)
    {
#pragma unroll
        for (i32 n = 0; n < own / 8; n++)
#pragma unroll
            for (i32 h = 0; h < 2; h++) {
                Pair v = {0.0f, 0.0f};
                if constexpr (Config::state)
                    if (at.batch < in.sequences)
                        v = port::load_pair(in.state + at.state + element(warp, n, h));
                s[n][2 * h] = v.a, s[n][2 * h + 1] = v.b;
            }
    }
    DEV static void store_states(const Tensors &in, const Place &at, i32 warp, const States &s)
    {
        if constexpr (Config::after)
#pragma unroll
            for (i32 n = 0; n < own / 8; n++)
#pragma unroll
                for (i32 h = 0; h < 2; h++)
                    if (at.batch < in.sequences)
                        port::store_pair(in.after + at.state + element(warp, n, h),
                                         {s[n][2 * h], s[n][2 * h + 1]});
    }
    DEV static void share_states(i32 warp, const States &s, T (&to)[slice][pitch])
    {
#pragma unroll
        for (i32 n = 0; n < own / 8; n++)
#pragma unroll
            for (i32 h = 0; h < 2; h++)
                port::store_pair(
                    &to[own_column(warp) + lane() / 4 + 8 * h][own_state(warp) + 8 * n + 2 * (lane() % 4)],
                    {s[n][2 * h], s[n][2 * h + 1]});
    }

    // S c of 16 tokens from `token` on.
    DEV static void add_before(Sums &y, const Stage &of, i32 token, const T (&state)[slice][pitch])
    {
#pragma unroll
        for (i32 k = 0; k < states; k += 16) {
            u32 a[4];
            ptx::ldmatrix(matrices(of.c, token, k, true), a);
#pragma unroll
            for (i32 p = 0; p < slice; p += 16) {
                u32 b[4];
                ptx::ldmatrix(matrices(state, p, k, false), b);
                ptx::mma<T>(y[p / 8], a, b[0], b[1]);
                ptx::mma<T>(y[p / 8 + 1], a, b[2], b[3]);
            }
        }
    }
    // c . b of 16 tokens from `i` on and 16 from `j` on.
    DEV static void compare(float (&g)[2][4], const Stage &of, i32 i, i32 j)
    {
#pragma unroll
        for (i32 k = 0; k < states; k += 16) {
            u32 a[4], b[4];
            ptx::ldmatrix(matrices(of.c, i, k, true), a);
            ptx::ldmatrix(matrices(of.b, j, k, false), b);
            ptx::mma<T>(g[0], a, b[0], b[1]);
            ptx::mma<T>(g[1], a, b[2], b[3]);
        }
    }
    // The product of weights of 16 tokens and x of 16 from `j` on.
    DEV static void add_within(Sums &y, const u32 (&m)[4], const Stage &of, i32 j)
    {
#pragma unroll
        for (i32 p = 0; p < slice; p += 16) {
            u32 b[4];
            ptx::ldmatrix_transposed(matrices(of.x, j, p, true), b);
            ptx::mma<T>(y[p / 8], m, b[0], b[1]);
            ptx::mma<T>(y[p / 8 + 1], m, b[2], b[3]);
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
    // x of 16 columns from `column` on and 16 tokens from `k` on, which count weight[0], weight[1], ...
    DEV static void weigh_x(u32 (&to)[terms][4], const Stage &of, i32 k, i32 column, const float *weight)
    {
        u32 x[4];
        ptx::ldmatrix_transposed(matrices(of.x, k, column, false), x);
#pragma unroll
        for (i32 h = 0; h < 2; h++) {
            const i32 t = 8 * h + 2 * (lane() % 4);
            split(x[2 * h], weight[t], weight[t + 1], to, 2 * h);
            split(x[2 * h + 1], weight[t], weight[t + 1], to, 2 * h + 1);
        }
    }
    // b of 16 tokens from `k` on, of the warp's states.
    DEV static void load_b(u32 (&b)[own / 16][4], i32 warp, const Stage &of, i32 k)
    {
#pragma unroll
        for (i32 n = 0; n < own / 16; n++)
            ptx::ldmatrix_transposed(matrices(of.b, k, own_state(warp) + 16 * n, true), b[n]);
    }
    // Adds to the states what 16 tokens from `k` on leave, which count weight[0], weight[1], ...
    DEV static void add_tokens(States &s, i32 warp, const Stage &of, i32 k, const float *weight)
    {
        u32 of_x[terms][4], b[own / 16][4];
        weigh_x(of_x, of, k, own_column(warp), weight);
        load_b(b, warp, of, k);
#pragma unroll
        for (i32 i = terms - 1; i >= 0; i--) // sums that do not wait for each other are neighbours
#pragma unroll
            for (i32 n = 0; n < own / 16; n++) {
                ptx::mma<T>(s[2 * n], of_x[i], b[n][0], b[n][1]);
                ptx::mma<T>(s[2 * n + 1], of_x[i], b[n][2], b[n][3]);
            }
    }

    // The states behind the chunk.
    DEV static void advance(States &s, i32 warp, const Stage &of, const Steps &steps)
    {
#pragma unroll
        for (i32 n = 0; n < own / 8; n++)
#pragma unroll
            for (i32 i = 0; i < 4; i++) s[n][i] *= steps.all;
#pragma unroll 1
        for (i32 k = 0; k < chunk; k += 16) add_tokens(s, warp, of, k, &steps.behind[k]);
    }

    // ---- y ----

    // Multiplies rows of 16 tokens from `token` on by e^D.
    template <i32 n> DEV static void scale_rows(float (&y)[n][4], i32 token, const Steps &steps)
    {
#pragma unroll
        for (i32 h = 0; h < 2; h++) {
            const float e = steps.before[token + lane() / 4 + 8 * h];
#pragma unroll
            for (i32 p = 0; p < n; p++) y[p][2 * h] *= e, y[p][2 * h + 1] *= e;
        }
    }

    // Columns from `first` on.
    template <i32 n>
    DEV static void store_rows(const Tensors &in, const Place &at, const float (&y)[n][4], const Stage &of,
                               i32 token, i32 first, i32 row, i32 count, float skip)
    {
#pragma unroll
        for (i32 h = 0; h < 2; h++) {
            const i32 t = token + lane() / 4 + 8 * h, c = first + 2 * (lane() % 4);
            if (t >= count) continue;
#pragma unroll
            for (i32 p = 0; p < n; p++) {
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
    // Rows of no sequence.
    DEV static void clear(const Tensors &in, const Place &at, i32 row, i32 end)
    {
        if constexpr (Config::y && Config::packed)
            for (i32 i = threadIdx.x; i < (end - row) * slice; i += Config::threads)
                at.y[(row + i / slice) * in.of_y.time + i % slice] = from_float<T>(0.0f);
    }
};

} // namespace coda
