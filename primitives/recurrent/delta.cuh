// delta.cuh -- the gated delta rule (arXiv 2412.06464), token by token:
//
//     S = e^decay S,    e = beta (v - k S),    S = S + k^T e,    o = scale q S = scale (q S' + (q k^T) e)
//
// where S' is S ahead of the token, decayed. Columns of S do not know each other: a warp has some neighbours
// among a head's, a lane four of them and `rows` rows, in registers from the first token to the last. So a
// state is read and written once, no warp waits for another, and all that a step reads is asked for before
// any of it is used; of more tokens the next one is. A lane's sums over its rows are added across `groups`
// lanes. Where there are four groups a lane has the rows of two lanes of eight, and adds up two sums as these
// do: the order depends on the number of keys alone. Norms are factors of the sums.
//
// Config: types T (of q, k, v, o), Decay, Beta, Before, After, Index (of starts); i32 keys, values, heads,
// group (heads of a key head), rows (of a lane), groups (of lanes, which have other rows), warps; bool
// by_row, norm, o, before, after, packed, key_pieces, value_pieces, state_pieces (they move by pieces), gates
// (decay and beta are rows a and b, of which the kernel makes them), gated (o is divided by its length, times
// gain and silu(z)), gated_pieces, early (states are asked for before the kernel ahead has ended, for which a
// thread waits itself); float scale, eps, factor (of rate), inv_n, norm_eps; i64 starts_stride.
#pragma once
#include "map/rsqrt_mean.cuh"
#include "map/scale.cuh"
#include "map/sigmoid.cuh"
#include "map/silu.cuh"
#include "map/softplus.cuh"
#include "port/tile.cuh"
#include "ptx/control.cuh"
#include "recurrent/delta_tensors.cuh"
#include "tile/block.cuh"

namespace coda {

template <class Config> struct Delta {
    typedef typename Config::T T;
    typedef typename Config::Index Index;
    static constexpr i32 keys = Config::keys, values = Config::values, heads = Config::heads;
    static constexpr i32 rows = Config::rows, groups = Config::groups, warps = Config::warps, width = 4;
    static constexpr i32 across = 32 / groups, columns = across * width * warps; // lanes of a row; of a block
    static constexpr i32 slices = (values + columns - 1) / columns;
    static constexpr i32 words = rows * (i32)sizeof(T) / 4, decays = Config::by_row ? rows : 1;
    static constexpr i32 parts = groups < 8 ? 8 / groups : 1; // sums of a lane
    static_assert(rows % (2 * parts) == 0 && rows * groups >= keys);

    typedef DeltaTensors<Config> Tensors;
    static constexpr i32 teller = Config::gated ? warps : 1;
    static_assert(!Config::gated || columns == values);
    struct Shared {
        float squares[2][teller]; // of a warp's columns, of two tokens in turn
    };
    // What a thread has of a head's state.
    struct Columns {
        i32 head, row, first, count; // columns from `first` on of the head's values
        float bias, rate;            // of gates
        float gain[width];
        float s[rows][width];
    };
    // What it has of a token.
    struct Token {
        u32 k[words], q[words]; // as in memory, of its rows
        float v[width], z[width], decay[decays], beta;
    };

    // ---- Memory ----

    // Are there such columns, and row i of the thread's?
    DEV static bool has(const Columns &c) { return values % (across * width) == 0 || c.count > 0; }
    DEV static bool has(const Columns &c, i32 i)
    {
        return has(c) && (keys == rows * groups || c.row + i < keys);
    }

    template <class U> DEV static void load_state(Columns &c, const U *p, const StateStrides &of, i64 batch)
    {
        p += batch * of.batch + c.head * of.head + c.row * of.row + c.first;
#pragma unroll
        for (i32 i = 0; i < rows; i++) {
            const bool there = Config::before && has(c, i);
            if (Config::state_pieces && there) port::load_piece(c.s[i], p + i * of.row);
            else port::load_tail(c.s[i], p + i * of.row, 1, Config::state_pieces || !there ? 0 : c.count);
        }
    }
    template <class U>
    DEV static void store_state(const Columns &c, U *p, const StateStrides &of, i64 batch)
    {
        p += batch * of.batch + c.head * of.head + c.row * of.row + c.first;
#pragma unroll
        for (i32 i = 0; i < rows; i++) {
            if (!has(c, i)) continue;
            if constexpr (Config::state_pieces) port::store_piece(p + i * of.row, c.s[i]);
            else port::store_tail(p + i * of.row, c.s[i], 1, c.count);
        }
    }

    // Elements of the thread's rows; those behind the last one are zeros.
    DEV static void load_keys(u32 (&to)[words], const T *p, const Columns &c)
    {
        p += c.head / Config::group * keys + c.row;
        if constexpr (Config::key_pieces) {
            constexpr i32 many = words % 4 == 0 ? 4 : words % 2 == 0 ? 2 : 1;
#pragma unroll
            for (i32 i = 0; i < words; i += many) {
                typedef port::Vector<u32, many> Piece;
                const Piece v = reinterpret_cast<const Piece *>(p)[i / many];
#pragma unroll
                for (i32 k = 0; k < many; k++) to[i + k] = v.at[k];
            }
        } else {
            float x[rows];
            port::load_tail(x, p, 1, keys - c.row);
#pragma unroll
            for (i32 i = 0; i < words; i++) {
                if constexpr (sizeof(T) == 2) to[i] = pack2<T>(x[2 * i], x[2 * i + 1]);
                else to[i] = float_bits(x[i]);
            }
        }
    }
    // Element i.
    DEV static float element(const u32 (&of)[words], i32 i)
    {
        if constexpr (sizeof(T) == 4) return bits_float(of[i]);
        else {
            const Pair two = unpack2<T>(of[i / 2]);
            return i % 2 ? two.b : two.a;
        }
    }

    DEV static void load_token(const Tensors &a, const Columns &c, i64 batch, u32 t, Token &to)
    {
        load_keys(to.k, a.k + batch * a.of_k.batch + t * a.of_k.time, c);
        load_keys(to.q, a.q + batch * a.of_q.batch + t * a.of_q.time, c);
        const T *const v = a.v + batch * a.of_v.batch + t * a.of_v.time + c.head * values + c.first;
        if (Config::value_pieces && has(c)) port::load_piece(to.v, v);
        else port::load_tail(to.v, v, 1, Config::value_pieces ? 0 : c.count);
        if constexpr (Config::gated) {
            const T *const z = a.z + batch * a.of_z.batch + t * a.of_z.time + c.head * values + c.first;
            if (Config::gated_pieces) port::load_piece(to.z, z);
            else port::load_tail(to.z, z, 1, width);
        }
        const auto *const decay = a.decay + batch * a.of_decay.batch + t * a.of_decay.time;
        if constexpr (Config::by_row)
            port::load_tail(to.decay, decay + c.head * keys + c.row, 1, keys - c.row);
        else to.decay[0] = load(decay + c.head);
        to.beta = load(a.beta + batch * a.of_beta.batch + t * a.of_beta.time + c.head);
    }
    // As maps of a pass over rows make them.
    DEV static void open_gates(const Columns &c, Token &to)
    {
        if constexpr (Config::gates) {
            to.decay[0] = map::softplus::apply(to.decay[0] + c.bias) * c.rate;
            to.beta = map::sigmoid::apply(to.beta);
        }
    }

    // ---- A token ----

    // x of all lanes of a column.
    template <i32 n> DEV static void add_groups(float (&x)[n])
    {
#pragma unroll
        for (i32 d = across; d < 32; d *= 2) {
#pragma unroll
            for (i32 i = 0; i < n; i++) x[i] += __shfl_xor_sync(~0u, x[i], d);
        }
    }
    // The sums over all rows, which each lane gets. add(i, to) adds what row i counts.
    template <i32 n, class Add> DEV static void add_rows(float (&sum)[n], const Add &add)
    {
#pragma unroll
        for (i32 first = 0; first < rows; first += rows / parts) {
            float part[n] = {};
#pragma unroll
            for (i32 i = first; i < first + rows / parts; i++) add(i, part);
#pragma unroll
            for (i32 i = 0; i < n; i++) sum[i] = first ? sum[i] + part[i] : part[i];
        }
        add_groups(sum);
    }
    // What k and q are multiplied by, and the product of both then.
    struct Measures {
        float of_k, of_q, kq;
    };
    DEV static Measures measure(const Token &token)
    {
        float sum[3];
        add_rows(sum, [&](i32 i, float(&to)[3]) {
            const float k = element(token.k, i), q = element(token.q, i);
            to[0] = fmaf(k, k, to[0]), to[1] = fmaf(q, q, to[1]), to[2] = fmaf(k, q, to[2]);
        });
        const float of_k = Config::norm ? math::rsqrt(sum[0] + Config::eps) : 1.0f;
        const float of_q = Config::scale * (Config::norm ? math::rsqrt(sum[1] + Config::eps) : 1.0f);
        return {of_k, of_q, sum[2] * of_k * of_q};
    }

    DEV static void step(Columns &c, const Token &token, float (&o)[width])
    {
        float sum[2 * width], along[width];
        const Measures m = measure(token);
        float factor = math::exp(token.decay[0]);
        add_rows(sum, [&](i32 i, float(&to)[2 * width]) {
            if (Config::by_row && i) factor = math::exp(token.decay[Config::by_row ? i : 0]);
            const float k = element(token.k, i), q = element(token.q, i);
#pragma unroll
            for (i32 j = 0; j < width; j++) {
                c.s[i][j] *= factor;
                to[j] = fmaf(c.s[i][j], k, to[j]);
                to[width + j] = fmaf(c.s[i][j], q, to[width + j]);
            }
        });
#pragma unroll
        for (i32 j = 0; j < width; j++) {
            const float e = token.beta * (token.v[j] - sum[j] * m.of_k);
            along[j] = e * m.of_k;
            o[j] = fmaf(e, m.kq, sum[width + j] * m.of_q);
        }
#pragma unroll
        for (i32 i = 0; i < rows; i++) {
            const float k = element(token.k, i);
#pragma unroll
            for (i32 j = 0; j < width; j++) c.s[i][j] = fmaf(k, along[j], c.s[i][j]);
        }
    }

    // o over its length among the head's columns, times gain and silu(z). All lanes of a column have it.
    DEV static void gate(const Columns &c, const Token &token, u32 turn, Shared &shared, float (&o)[width])
    {
        float sum = 0.0f;
#pragma unroll
        for (i32 j = 0; j < width; j++) sum = fmaf(o[j], o[j], sum);
#pragma unroll
        for (i32 d = 1; d < across; d *= 2) sum += __shfl_xor_sync(~0u, sum, d);
        float(&squares)[teller] = shared.squares[turn % 2];
        if (threadIdx.x % 32 == 0) squares[threadIdx.x / 32] = sum;
        __syncthreads();
        float all = 0.0f;
#pragma unroll
        for (i32 w = 0; w < teller; w++) all += squares[w];
        const float by = map::rsqrt_mean::apply(all, Config::inv_n, Config::norm_eps);
#pragma unroll
        for (i32 j = 0; j < width; j++) o[j] = o[j] * by * c.gain[j] * map::silu::apply(token.z[j]);
    }

    DEV static void store_o(const Tensors &a, const Columns &c, i64 batch, u32 t, const float (&o)[width])
    {
        T *const p = a.o + batch * a.of_o.batch + t * a.of_o.time + c.head * values + c.first;
        if (threadIdx.x % 32 >= across || !has(c)) return;
        if constexpr (Config::value_pieces) port::store_piece(p, o);
        else port::store_tail(p, o, 1, c.count);
    }

    // ---- Sequences ----

    DEV static void run_sequence(const Tensors &a, Columns &c, u32 b, bool waits, Shared &shared)
    {
        SequenceRows of = {(i32)b, 0, a.time};
        if constexpr (Config::packed) of = a.packed().rows_of(b);
        const i64 batch = Config::packed ? 0 : b;
        Token token;
        if constexpr (Config::gates)
            c.bias = a.bias[c.head], c.rate = map::scale::apply(a.rate[c.head], Config::factor);
        if constexpr (Config::gated) port::load_tail(c.gain, a.gain + c.first, 1, width);
        if constexpr (Config::early) load_state(c, a.before, a.of_before, b);
        if (waits) ptx::grid_wait();
        if (of.first < of.end) load_token(a, c, batch, of.first, token);
        if constexpr (!Config::early) load_state(c, a.before, a.of_before, b);
#pragma unroll 1
        for (u32 t = of.first; t < of.end; t++) {
            Token next = token;
            float o[width];
            if (t + 1 < of.end) load_token(a, c, batch, t + 1, next);
            open_gates(c, token);
            step(c, token, o);
            if constexpr (Config::gated) gate(c, token, t - of.first, shared, o);
            if constexpr (Config::o) store_o(a, c, batch, t, o);
            token = next;
        }
        if constexpr (Config::after) store_state(c, a.after, a.of_after, b);
    }

    // Rows of no sequence.
    DEV static void clear(const Tensors &a, const Columns &c)
    {
        const u32 first = a.sequences ? a.packed().rows_of(0).first : a.time;
        const u32 end = a.sequences ? a.packed().rows_of(a.sequences - 1).end : a.time;
        const float zero[width] = {};
#pragma unroll 1
        for (u32 t = 0; t < a.time && Config::o; t++)
            if (t < first || t >= end) store_o(a, c, 0, t, zero);
    }

    template <class Block> DEV static void run(const Block &block, const Tensors &a)
    {
        Shared &shared = *reinterpret_cast<Shared *>(block.shared());
        const i32 warp = ptx::uniform(threadIdx.x / 32), lane = threadIdx.x % 32;
        const i64 all = (i64)(a.sequences + Config::packed) * heads * slices;
        for (i64 item = block.index(); item < all; item += block.count()) {
            const u32 b = (u32)(item / (heads * slices));
            const i32 first = ((i32)(item % slices) * warps + warp) * across * width; // of the warp
            if (first >= values) continue;
            Columns c;
            c.head = (i32)(item / slices % heads);
            c.row = lane / across * rows;
            c.first = first + lane % across * width;
            c.count = values - c.first;
            if (b < a.sequences) run_sequence(a, c, b, Config::early && item == block.index(), shared);
            else clear(a, c);
        }
    }
};

} // namespace coda
