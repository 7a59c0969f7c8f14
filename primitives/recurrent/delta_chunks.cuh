// delta_chunks.cuh -- the gated delta rule (arXiv 2412.06464) by chunks of 64 tokens on tensor cores. With G
// the sum of decays up to a token of the chunk, and S the state ahead of it,
//
//     (I + L) N = beta (v - e^G k S)              L_ij = beta_i (k_i . k_j) e^(G_i - G_j)  for j < i
//     o  = scale (e^G q S + P N)                  P_ij = (q_i . k_j) e^(G_i - G_j)         for j <= i
//     S' = e^(G_64) S + (e^(G_64 - G) k)^T N
//
// Exponents are differences, taken before e is raised to them: quotients of powers would be 0 / 0. Lengths of
// q and k are factors of products.
//
// A block has `slice` columns of a head's values, and three kinds of warps. DeltaCarry has 16 columns of S,
// which stay in registers, in fp32, from the first chunk to the last. All its products are transposed,
// S^T k^T, then N^T = (..)^T T^T with T = (I + L)^-1, then N^T k, so that the results of one are the operand
// of the next without leaving registers. A float that is an operand is the sum of two bf16. DeltaSolve
// (delta_solve.cuh) brings tokens and makes T of the next chunk; DeltaRead makes o of what the others leave
// in shared memory, and nobody waits for it.
//
// Whoever writes an element of `after` has read it of `before`: both may be one memory.
//
// Config: as delta.cuh has it, of T bf16, by_row false; i32 slice, ring.
#pragma once
#include "recurrent/delta_solve.cuh"
#include "tile/block.cuh"

namespace coda {

// ---- Warps that carry 16 columns of a state ----

template <class Config> struct DeltaCarry {
    typedef DeltaChunk<Config> Chunk;
    typedef typename Chunk::T T;
    typedef typename Chunk::Shared Shared;
    static constexpr i32 keys = Chunk::keys, chunk = Chunk::chunk, blocks = Chunk::blocks;
    typedef float State[keys / 8][4];   // [16 values, keys]
    typedef float Tokens[chunk / 8][4]; // [16 values, tokens]
    typedef Operand Operands[blocks];

    // Where the first element of the pair of result 8 n is in S, by its row and column.
    DEV static i64 element(const StateStrides &of, i32 n, i32 half)
    {
        return (8 * n + 2 * (Chunk::lane() % 4)) * of.row + Chunk::lane() / 4 + 8 * half;
    }
    template <class U> DEV static void load(const U *p, const StateStrides &of, State &s)
    {
#pragma unroll
        for (i32 n = 0; n < keys / 8; n++)
#pragma unroll
            for (i32 h = 0; h < 2; h++) {
                const U *const at = p + element(of, n, h);
                s[n][2 * h] = to_float(at[0]), s[n][2 * h + 1] = to_float(at[of.row]);
            }
    }
    template <class U> DEV static void store(U *p, const StateStrides &of, const State &s)
    {
#pragma unroll
        for (i32 n = 0; n < keys / 8; n++)
#pragma unroll
            for (i32 h = 0; h < 2; h++) {
                U *const at = p + element(of, n, h);
                at[0] = from_float<U>(s[n][2 * h]), at[of.row] = from_float<U>(s[n][2 * h + 1]);
            }
    }

    // S^T k^T; the larger halves of S are left for who reads.
    DEV static void see(const State &s, u32 k, typename Chunk::Left &left, Tokens &seen)
    {
#pragma unroll
        for (i32 i = 0; i < keys / 16; i++) {
            Operand high, low;
            Operands b;
            split_results<T>(s[2 * i], s[2 * i + 1], high, low);
            if constexpr (Config::o) Chunk::leave(left.state[i], high);
#pragma unroll
            for (i32 t = 0; t < blocks; t++)
                ptx::ldmatrix(Chunk::Keys::matrices(k, 16 * t, 16 * i, false), b[t]);
#pragma unroll
            for (i32 t = 0; t < blocks; t++) multiply<T>(seen[2 * t], seen[2 * t + 1], low, b[t]);
#pragma unroll
            for (i32 t = 0; t < blocks; t++) multiply<T>(seen[2 * t], seen[2 * t + 1], high, b[t]);
        }
    }

    // beta (v - e^G k S) of 16 tokens, `x` of v.
    template <class Numbers>
    DEV static void miss(const Tokens &seen, const Operand &x, const Numbers &of, i32 t, Operand &high,
                         Operand &low)
    {
#pragma unroll
        for (i32 n = 0; n < 2; n++) {
            const i32 at = 16 * t + 8 * n + 2 * (Chunk::lane() % 4);
            const Pair beta = port::load_pair(&of.beta[at]), factor = port::load_pair(&of.seen[at]);
#pragma unroll
            for (i32 h = 0; h < 2; h++) {
                const Pair want = unpack2<T>(x[2 * n + h]);
                const float a = fmaf(-factor.a, seen[2 * t + n][2 * h], beta.a * want.a);
                const float b = fmaf(-factor.b, seen[2 * t + n][2 * h + 1], beta.b * want.b);
                split_pair<T>(a, b, high[2 * n + h], low[2 * n + h]);
            }
        }
    }

    // N^T, of which tokens of a block need those before it and its own.
    DEV static void solve(const Operands &high, const Operands &low, u32 t_high, u32 t_low, Tokens &n)
    {
#pragma unroll
        for (i32 j = 0; j < blocks; j++) {
            Operands b, c;
#pragma unroll
            for (i32 i = j; i < blocks; i++) {
                ptx::ldmatrix_transposed(Chunk::Square::matrices(t_low, 16 * j, 16 * i, true), c[i]);
                ptx::ldmatrix_transposed(Chunk::Square::matrices(t_high, 16 * j, 16 * i, true), b[i]);
            }
#pragma unroll
            for (i32 i = j; i < blocks; i++) multiply<T>(n[2 * i], n[2 * i + 1], high[j], c[i]);
#pragma unroll
            for (i32 i = j; i < blocks; i++) multiply<T>(n[2 * i], n[2 * i + 1], low[j], b[i]);
#pragma unroll
            for (i32 i = j; i < blocks; i++) multiply<T>(n[2 * i], n[2 * i + 1], high[j], b[i]);
        }
    }

    // N e^(G_64 - G), times k's length, of eight tokens from 8 t on. Where keys repeat, what is added to S is
    // the sum of all.
    template <bool last>
    DEV static void weigh(const float (&n)[4], i32 t, const float *later, Pair (&left)[2], Operands &high,
                          Operands &low)
    {
        const Pair w = port::load_pair(&later[8 * t + 2 * (Chunk::lane() % 4)]);
#pragma unroll
        for (i32 h = 0; h < 2; h++)
            split_of_sum<last, T>(n[2 * h] * w.a, n[2 * h + 1] * w.b, left[h], high[t / 2][t % 2 * 2 + h],
                                  low[t / 2][t % 2 * 2 + h]);
    }
    DEV static void weigh_all(const Tokens &n, const float *later, Operands &high, Operands &low)
    {
        constexpr i32 last = chunk / 8 - 1;
        Pair left[2] = {};
#pragma unroll
        for (i32 t = 0; t < last; t++) weigh<false>(n[t], t, later, left, high, low);
        weigh<true>(n[last], last, later, left, high, low);
    }
    // The sum is of its own, and then added: tensor cores round what they add to towards 0.
    DEV static void advance(State &s, const Operands &high, const Operands &low, u32 k, float all)
    {
#pragma unroll
        for (i32 n = 0; n < keys / 32; n++) {
            float d[4][4] = {};
#pragma unroll
            for (i32 t = 0; t < blocks; t++) {
                Operand b, c;
                ptx::ldmatrix_transposed(Chunk::Keys::matrices(k, 16 * t, 32 * n, true), b);
                ptx::ldmatrix_transposed(Chunk::Keys::matrices(k, 16 * t, 32 * n + 16, true), c);
                multiply<T>(d[0], d[1], low[t], b), multiply<T>(d[2], d[3], low[t], c);
                multiply<T>(d[0], d[1], high[t], b), multiply<T>(d[2], d[3], high[t], c);
            }
#pragma unroll
            for (i32 i = 0; i < 16; i++)
                s[4 * n + i / 4][i % 4] = fmaf(s[4 * n + i / 4][i % 4], all, d[i / 4][i % 4]);
        }
    }

    DEV static void leave_change(const Tokens &n, typename Chunk::Left &left, i32 turn)
    {
#pragma unroll
        for (i32 t = 0; t < blocks; t++) {
            Operand x;
#pragma unroll
            for (i32 i = 0; i < 4; i++)
                x[i] = pack2<T>(n[2 * t + i / 2][i % 2 * 2], n[2 * t + i / 2][i % 2 * 2 + 1]);
            Chunk::leave(left.change[t], x);
        }
        Chunk::say_left(Chunk::CHANGE, turn);
    }

    DEV static void take(State &s, i32 warp, i32 turn, i32 stage, Shared &shared)
    {
        const typename Chunk::Numbers &of = shared.numbers[turn];
        typename Chunk::Left &left = shared.left[turn][warp];
        const u32 k = ptx::shared_address(shared.stage[stage].k),
                  v = ptx::shared_address(shared.stage[stage].v);
        Operands high, low;
        Tokens n = {};
        {
            Tokens seen = {};
            see(s, k, left, seen);
            if constexpr (Config::o) Chunk::say_left(Chunk::STATE, turn);
#pragma unroll
            for (i32 t = 0; t < blocks; t++) {
                Operand x;
                ptx::ldmatrix_transposed(Chunk::Values::matrices(v, 16 * t, 16 * warp, false), x);
                miss(seen, x, of, t, high[t], low[t]);
            }
        }
        solve(high, low, ptx::shared_address(shared.inverse[turn].high),
              ptx::shared_address(shared.inverse[turn].low), n);
        if constexpr (Config::o) leave_change(n, left, turn);
        weigh_all(n, of.later, high, low);
        advance(s, high, low, k, of.all);
    }

    template <class Place>
    DEV static void run(const DeltaTensors<Config> &in, const Place &at, i32 warp, u32 first, u32 end,
                        Shared &shared)
    {
        State s = {};
        const bool any = at.sequence < in.sequences;
        if (Config::before && any)
            load(in.before + at.sequence * in.of_before.batch + at.head * in.of_before.head + at.column +
                     16 * warp,
                 in.of_before, s);
        i32 turn = 0, stage = 0;
#pragma unroll 1
        for (u32 row = first; row < end; row += chunk) {
            Chunk::wait_ready(turn);
            take(s, warp, turn, stage, shared);
            Chunk::finish(turn, row, end);
            Chunk::next(turn, stage);
        }
        if (Config::after && any)
            store(in.after + at.sequence * in.of_after.batch + at.head * in.of_after.head + at.column +
                      16 * warp,
                  in.of_after, s);
    }
};

// ---- Warps that read it ----

template <class Config> struct DeltaRead {
    typedef DeltaChunk<Config> Chunk;
    typedef typename Chunk::T T;
    typedef typename Chunk::Shared Shared;
    static constexpr i32 keys = Chunk::keys, chunk = Chunk::chunk, blocks = Chunk::blocks,
                         parts = Chunk::parts;
    static constexpr i32 pitch = 24; // of o's rows in shared memory: other banks for the tokens of a warp
    typedef float Tokens[chunk / 8][4];

    // Which 16 rows of P the warp makes, `i` of blocks / parts: of two a short and a long one.
    DEV static i32 block_of(i32 warp, i32 i) { return i ? blocks - 1 - warp : warp; }

    // Block j of P's rows 16 r on, of products q k^T, times `factor` of a row, which before the diagonal has
    // what of a weight is the row's.
    template <bool diagonal>
    DEV static void weigh(i32 r, i32 j, const float (&sum)[2][4], const float (&factor)[2],
                          const typename Chunk::Numbers &of, T *p)
    {
        Operand block;
#pragma unroll
        for (i32 h = 0; h < 2; h++) {
            const i32 t = 16 * r + Chunk::lane() / 4 + 8 * h;
#pragma unroll
            for (i32 n = 0; n < 2; n++) {
                const i32 column = 16 * j + 8 * n + 2 * (Chunk::lane() % 4);
                const Pair w = of.template weight<diagonal>(t, column);
                const float a = factor[h] * w.a * sum[n][2 * h], b = factor[h] * w.b * sum[n][2 * h + 1];
                block[h + 2 * n] =
                    diagonal ? pack2<T>(column <= t ? a : 0.0f, column < t ? b : 0.0f) : pack2<T>(a, b);
            }
        }
        Chunk::store_block(p, 16 * r, 16 * j, block);
    }
    template <bool diagonal>
    DEV static void relate(i32 r, i32 j, const typename Chunk::Rows &rows, u32 k, const float (&factor)[2],
                           const typename Chunk::Numbers &of, typename Chunk::Weights &to)
    {
        float sum[2][4] = {};
        Chunk::relate(rows, k, 16 * j, sum);
        weigh<diagonal>(r, j, sum, factor, of, to.p);
    }
    // P of tokens 16 r on, and what q is multiplied by.
    DEV static void relate_rows(i32 r, u32 q, u32 k, const typename Chunk::Numbers &of,
                                typename Chunk::Weights &to)
    {
        typename Chunk::Rows rows;
        float length[2] = {}, factor[2], before[2];
        Chunk::load_rows(q, 16 * r, rows);
        if constexpr (Config::norm)
#pragma unroll
            for (i32 i = 0; i < keys / 16; i++) Chunk::add_squares(rows[i], length);
#pragma unroll
        for (i32 h = 0; h < 2; h++) {
            const i32 t = 16 * r + Chunk::lane() / 4 + 8 * h;
            factor[h] = Config::scale * Chunk::finish_length(length[h]);
            before[h] = factor[h] * of.within[t];
            if (Chunk::lane() % 4 == 0) to.q[t] = factor[h] * of.grown[t];
        }
        relate<true>(r, r, rows, k, factor, of, to);
#pragma unroll 1
        for (i32 j = 0; j < r; j++) relate<false>(r, j, rows, k, before, of, to);
    }

    // q S and then P N, each as soon as the other warps have left what it needs.
    DEV static void add_state(const typename Chunk::Left &left, u32 q, const typename Chunk::Weights &w,
                              Tokens &o)
    {
#pragma unroll
        for (i32 i = 0; i < keys / 16; i++) {
            Operand a, b;
            Chunk::find(left.state[i], a);
#pragma unroll
            for (i32 t = 0; t < blocks; t++) {
                ptx::ldmatrix(Chunk::Keys::matrices(q, 16 * t, 16 * i, false), b);
                multiply<T>(o[2 * t], o[2 * t + 1], a, b);
            }
        }
#pragma unroll
        for (i32 t = 0; t < chunk / 8; t++) {
            const Pair of_q = port::load_pair(&w.q[8 * t + 2 * (Chunk::lane() % 4)]);
#pragma unroll
            for (i32 i = 0; i < 4; i++) o[t][i] *= i % 2 ? of_q.b : of_q.a;
        }
    }
    DEV static void add_change(const typename Chunk::Left &left, u32 p, Tokens &o)
    {
#pragma unroll
        for (i32 j = 0; j < blocks; j++) {
            Operand a, b;
            Chunk::find(left.change[j], a);
#pragma unroll
            for (i32 i = j; i < blocks; i++) {
                ptx::ldmatrix(Chunk::Square::matrices(p, 16 * i, 16 * j, false), b);
                multiply<T>(o[2 * i], o[2 * i + 1], a, b);
            }
        }
    }

    // By way of shared memory, as rows of 32 bytes.
    DEV static void store(const Tokens &o, T *scratch, T *to, i64 time, u32 count)
    {
        const i32 lane = Chunk::lane();
        __syncwarp();
#pragma unroll
        for (i32 t = 0; t < chunk / 8; t++)
#pragma unroll
            for (i32 i = 0; i < 4; i++)
                scratch[(8 * t + 2 * (lane % 4) + i % 2) * pitch + lane / 4 + i / 2 * 8] =
                    from_float<T>(o[t][i]);
        __syncwarp();
#pragma unroll
        for (i32 e = lane; e < 2 * chunk; e += 32)
            if (e / 2 < count)
                *(typename Chunk::Piece *)(to + e / 2 * time + e % 2 * 8) =
                    *(const typename Chunk::Piece *)(scratch + e / 2 * pitch + e % 2 * 8);
    }

    template <class Place>
    DEV static void run(const DeltaTensors<Config> &in, const Place &at, i32 warp, u32 first, u32 end,
                        Shared &shared)
    {
        T *const to = in.o + at.batch * in.of_o.batch + at.head * Config::values + at.column + 16 * warp;
        i32 turn = 0, stage = 0;
#pragma unroll 1
        for (u32 row = first; row < end; row += chunk) {
            const u32 q = ptx::shared_address(shared.stage[stage].q),
                      k = ptx::shared_address(shared.stage[stage].k);
            typename Chunk::Left &left = shared.left[turn][warp];
            typename Chunk::Weights &weights = shared.weights[turn];
            Chunk::wait_ready(turn);
#pragma unroll 1
            for (i32 i = 0; i < blocks / parts; i++)
                relate_rows(block_of(warp, i), q, k, shared.numbers[turn], weights);
            ptx::named_barrier(Chunk::READERS, 32 * parts);
            Tokens o = {};
            Chunk::wait_left(Chunk::STATE, turn);
            add_state(left, q, weights, o);
            Chunk::wait_left(Chunk::CHANGE, turn);
            add_change(left, ptx::shared_address(weights.p), o);
            store(o, (T *)&left, to + row * in.of_o.time, in.of_o.time,
                  end - row < chunk ? end - row : chunk);
            Chunk::finish(turn, row, end);
            Chunk::next(turn, stage);
        }
    }
};

template <class Config> struct DeltaChunks {
    typedef DeltaChunk<Config> Chunk;
    typedef DeltaTensors<Config> Tensors;
    typedef typename Chunk::Shared Shared;
    static constexpr i32 parts = Chunk::parts, shared_bytes = sizeof(Shared);

    struct Place {
        u32 sequence;
        i32 head, column; // the first of the slice
        i64 batch;
    };

    // Rows of no sequence.
    DEV static void clear(const Tensors &in, const Place &at, u32 row, u32 end)
    {
        if constexpr (Config::o && Config::packed)
            for (u32 i = threadIdx.x; i < (end - row) * Config::slice; i += Chunk::threads)
                in.o[(i64)(row + i / Config::slice) * in.of_o.time + at.head * Config::values + at.column +
                     i % Config::slice] = from_float<typename Config::T>(0.0f);
    }

    template <class Block> DEV static void run(const Block &block, const Tensors &in)
    {
        Shared &shared = *reinterpret_cast<Shared *>(block.shared());
        constexpr u32 slices = Config::values / Config::slice;
        const u32 item = block.index(), sequence = item / (Config::heads * slices);
        const Place at = {sequence, (i32)(item / slices % Config::heads),
                          (i32)(item % slices) * Config::slice, Config::packed ? 0 : (i64)sequence};
        SequenceRows of = {(i32)sequence, 0, in.time};
        if constexpr (Config::packed) {
            of.end = 0;
            if (sequence < in.sequences) of = in.packed().rows_of(sequence);
            if (sequence == 0) clear(in, at, 0, of.first);
            if (sequence + 1 >= in.sequences) clear(in, at, of.end, in.time);
        }
        const i32 warp = ptx::uniform(threadIdx.x / 32);
        if (warp < parts) {
            DeltaCarry<Config>::run(in, at, warp, of.first, of.end, shared);
        } else if (warp < parts + Chunk::readers) {
            if constexpr (Config::o) DeltaRead<Config>::run(in, at, warp - parts, of.first, of.end, shared);
        } else DeltaSolve<Config>::run(in, at, warp - parts - Chunk::readers, of.first, of.end, shared);
    }
};

} // namespace coda
