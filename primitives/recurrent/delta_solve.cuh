// delta_solve.cuh -- of the gated delta rule by chunks: what warps of a block share, and the four warps that
// bring tokens and make T = (I + L)^-1 of a chunk.
//
// L's blocks of 16 x 16 on the diagonal are inverted in fp32 by substitution, a column each thread; those
// below follow, a column of blocks a warp, from the sums over blocks above:
//
//     T_ij = - T_ii (the sum of L_im T_mj over j <= m < i)
//
// Powers of L, by whose squares its inverse could be made, grow before they vanish where keys repeat. What is
// multiplied is the sum of two bf16. Where keys repeat T's columns nearly cancel, and what counts is what
// they err by in sum: the smaller halves of its blocks on the diagonal have sums of nearly 0, and L,
// multiplied by these, is the sum of three bf16. T^T lies in shared memory, which has its blocks on and above
// the diagonal; in the others lies L, whose third parts lie where those of P are 0.
#pragma once
#include "math.cuh"
#include "ptx/barrier.cuh"
#include "ptx/copy.cuh"
#include "recurrent/delta_tensors.cuh"
#include "recurrent/matrix_tile.cuh"

namespace coda {

// What the warps of a block share. `ring` chunks are at work: 2, and the tokens of a third one come
// meanwhile, or 1.
template <class Config> struct DeltaChunk {
    typedef typename Config::T T;
    static constexpr i32 keys = Config::keys, slice = Config::slice, ring = Config::ring;
    static constexpr i32 chunk = 64, blocks = chunk / 16, stages = ring == 1 ? 1 : ring + 1;
    static constexpr i32 parts = slice / 16, readers = Config::o ? parts : 0, makers = 4;
    static constexpr i32 threads = 32 * (parts + readers + makers), others = threads - 32 * makers;
    static_assert(sizeof(T) == 2 && !Config::by_row && makers == blocks && Config::values % slice == 0);

    typedef MatrixTile<T, keys, chunk> Keys;
    typedef MatrixTile<T, slice, chunk> Values;
    typedef MatrixTile<T, chunk, chunk> Square;

    struct alignas(16) Piece {
        u32 x[4];
    };
    struct alignas(1024) Stage {
        T k[chunk * keys], q[chunk * keys], v[chunk * slice];
    };
    struct alignas(1024) Inverse {
        T high[chunk * chunk], low[chunk * chunk];
    };
    struct alignas(128) Weights {
        T p[chunk * chunk];
        float q[chunk];
    };
    // Numbers of tokens: `high` and `low` are G / ln 2, `k` one over its length, `grown` e^G, `seen` what
    // k S is multiplied by, `later` what N is for S, and `all` what S is. e^(G_i - G_j) k_j of i in a block
    // of 16 and j in one before it is within[i] across[block - 1][j], both by way of the block's first token.
    struct alignas(16) Numbers {
        float beta[chunk], high[chunk], low[chunk], k[chunk], grown[chunk], seen[chunk], later[chunk];
        float within[chunk], across[blocks - 1][chunk], all;

        DEV float decay(i32 i, i32 j) const
        {
            return math::exp2((high[i] - high[j]) + (low[i] - low[j]));
        }
        // e^(G_i - G_j) k_j of row i and columns j and j + 1, of i's block of 16, or of one before it,
        // but for within[i], which a row's factor has.
        template <bool diagonal> DEV Pair weight(i32 i, i32 j) const
        {
            const Pair of = port::load_pair(diagonal ? &k[j] : &across[i / 16 - 1][j]);
            if constexpr (diagonal) return {of.a * decay(i, j), of.b * decay(i, j + 1)};
            return of;
        }
    };
    // Operands of a warp that carries for one that reads: S ahead of the chunk, N. Then o.
    struct alignas(128) Left {
        Piece state[keys / 16][32], change[blocks][32];
    };
    typedef float Diagonal[blocks][16][16];
    struct Shared {
        Stage stage[stages];
        Inverse inverse[ring];
        Weights weights[ring];
        Left left[ring][readers ? readers : 1];
        Diagonal diagonal;
        Numbers numbers[ring];
    };

    // Barriers: two each from READY on.
    enum { MAKERS = 1, READERS, READY, FINISHED = READY + 2, STATE = FINISHED + 2, CHANGE = STATE + 2 };

    DEV static i32 lane() { return threadIdx.x % 32; }
    // Who carries has left a state, or N.
    DEV static void say_left(i32 what, i32 turn) { ptx::named_arrive(what + turn, 64 * parts); }
    DEV static void wait_left(i32 what, i32 turn) { ptx::named_barrier(what + turn, 64 * parts); }
    DEV static void wait_ready(i32 turn) { ptx::named_barrier(READY + turn, threads); }
    // The memory of the chunk from `row` on is free, for which the makers wait if there is a chunk to use it.
    DEV static void finish(i32 turn, u32 row, u32 end)
    {
        if (end - row > ring * chunk) ptx::named_arrive(FINISHED + turn, threads);
    }
    DEV static void next(i32 &turn, i32 &stage)
    {
        turn = turn + 1 == ring ? 0 : turn + 1, stage = stage + 1 == stages ? 0 : stage + 1;
    }

    // A block of 16 x 16 from (row, column) on, of two results as they lie, of 16 bits.
    DEV static void store_block(T *tile, i32 row, i32 column, const Operand &x)
    {
#if !defined __CUDA_ARCH__ || __CUDA_ARCH__ >= 900
        ptx::stmatrix(Square::matrices(ptx::shared_address(tile), row, column, true), x[0], x[1], x[2], x[3]);
#else
#pragma unroll
        for (i32 e = 0; e < 4; e++)
            *(u32 *)((u8 *)tile + Square::offset(row + lane() / 4 + e % 2 * 8,
                                                 column + 2 * (lane() % 4) + e / 2 * 8)) = x[e];
#endif
    }

    DEV static void leave(Piece *to, const Operand &x) { to[lane()] = {x[0], x[1], x[2], x[3]}; }
    DEV static void find(const Piece (&from)[32], Operand &x)
    {
        const Piece p = from[lane()];
#pragma unroll
        for (i32 i = 0; i < 4; i++) x[i] = p.x[i];
    }

    typedef Operand Rows[keys / 16]; // 16 rows of k or q
    DEV static void load_rows(u32 tile, i32 row, Rows &to)
    {
#pragma unroll
        for (i32 i = 0; i < keys / 16; i++) ptx::ldmatrix(Keys::matrices(tile, row, 16 * i, true), to[i]);
    }
    // The products of 16 rows and 16 rows of k, as sums of the even steps and of the odd ones.
    DEV static void relate(const Rows &a, u32 k, i32 row, float (&sum)[2][4])
    {
        float odd[2][4] = {};
#pragma unroll
        for (i32 i = 0; i < keys / 16; i++) {
            Operand b;
            ptx::ldmatrix(Keys::matrices(k, row, 16 * i, false), b);
            if (i % 2) multiply<T>(odd[0], odd[1], a[i], b);
            else multiply<T>(sum[0], sum[1], a[i], b);
        }
#pragma unroll
        for (i32 e = 0; e < 8; e++) sum[e / 4][e % 4] += odd[e / 4][e % 4];
    }

    // Adds squares of rows lane / 4 and 8 below, whose elements four lanes have.
    DEV static void add_squares(const Operand &a, float (&sum)[2])
    {
#pragma unroll
        for (i32 i = 0; i < 4; i++) {
            const Pair x = unpack2<T>(a[i]);
            sum[i % 2] = fmaf(x.a, x.a, fmaf(x.b, x.b, sum[i % 2]));
        }
    }
    DEV static float finish_length(float sum)
    {
        if constexpr (!Config::norm) return 1.0f;
        sum += __shfl_xor_sync(~0u, sum, 1);
        sum += __shfl_xor_sync(~0u, sum, 2);
        return math::rsqrt(sum + Config::eps);
    }
};

template <class Config> struct DeltaSolve {
    typedef DeltaChunk<Config> Chunk;
    typedef DeltaTensors<Config> Tensors;
    typedef typename Chunk::T T;
    typedef typename Chunk::Shared Shared;
    typedef typename Chunk::Numbers Numbers;
    static constexpr i32 keys = Chunk::keys, chunk = Chunk::chunk, blocks = Chunk::blocks;
    static constexpr i32 threads = 32 * Chunk::makers;

    struct Source {
        const T *k, *q, *v; // of row 0
        const typename Config::Decay *decay;
        const typename Config::Beta *beta;
    };
    // Gates of two neighbouring tokens, as they lie in memory, and their sums.
    struct Gates {
        float decay[2], beta[2];
    };
    struct Sums {
        float high[2], low[2], beta[2];
    };

    DEV static void bring(const Tensors &in, const Source &of, i32 thread, u32 row, i32 count,
                          typename Chunk::Stage &to)
    {
        if (count > 0) {
            bring_rows<typename Chunk::Keys, keys, chunk, threads>(thread, to.k, of.k + row * in.of_k.time,
                                                                   in.of_k.time, count);
            if constexpr (Config::o)
                bring_rows<typename Chunk::Keys, keys, chunk, threads>(
                    thread, to.q, of.q + row * in.of_q.time, in.of_q.time, count);
            bring_rows<typename Chunk::Values, Config::slice, chunk, threads>(
                thread, to.v, of.v + row * in.of_v.time, in.of_v.time, count);
        }
        ptx::copy_async_commit();
    }
    DEV static void load_gates(const Tensors &in, const Source &of, u32 row, i32 count, Gates &to)
    {
#pragma unroll
        for (i32 i = 0; i < 2; i++) {
            const i32 t = 2 * Chunk::lane() + i;
            to.decay[i] = t < count ? to_float(of.decay[(row + t) * in.of_decay.time]) : 0.0f;
            to.beta[i] = t < count ? to_float(of.beta[(row + t) * in.of_beta.time]) : 0.0f;
        }
    }

    // e^-128 is nothing in fp32, as is any less; but -128 has differences.
    DEV static float bounded(float decay) { return decay < -128.0f ? -128.0f : decay; }
    // A decay over ln 2, as the sum of two floats.
    DEV static Pair of_two(float decay)
    {
        const float x = bounded(decay), high = x * math::LOG2_E, rest = 1.92596303e-8f; // of 1 / ln 2
        return {high, fmaf(x, rest, fmaf(x, math::LOG2_E, -high))};
    }
    // The sum of two sums of two floats, whose first one has all that fits it (Dekker).
    DEV static Pair add(Pair x, Pair y)
    {
        const float sum = x.a + y.a, part = sum - x.a;
        const float rest = ((x.a - (sum - part)) + (y.a - part)) + (x.b + y.b), high = sum + rest;
        return {high, rest - (high - sum)};
    }
    // A warp: the sums of decays.
    DEV static Sums sum_decays(const Gates &of)
    {
        const Pair second = of_two(of.decay[1]);
        Pair all = add(of_two(of.decay[0]), second);
#pragma unroll
        for (i32 w = 1; w < 32; w *= 2) {
            const i32 from = max(Chunk::lane() - w, 0);
            const Pair before = {__shfl_sync(~0u, all.a, from), __shfl_sync(~0u, all.b, from)};
            if (Chunk::lane() >= w) all = add(all, before);
        }
        const Pair first = add(all, {-second.a, -second.b});
        return {{first.a, all.a}, {first.b, all.b}, {of.beta[0], of.beta[1]}};
    }
    DEV static void store_sums(const Sums &of, Numbers &to)
    {
        const i32 t = 2 * Chunk::lane();
        port::store_pair(&to.beta[t], {of.beta[0], of.beta[1]});
        port::store_pair(&to.high[t], {of.high[0], of.high[1]});
        port::store_pair(&to.low[t], {of.low[0], of.low[1]});
    }

    // One over the lengths of the warp's tokens.
    DEV static void measure(i32 warp, const typename Chunk::Rows &rows, i32 count, Numbers &to)
    {
        float length[2] = {};
        if constexpr (Config::norm)
#pragma unroll
            for (i32 i = 0; i < keys / 16; i++) Chunk::add_squares(rows[i], length);
#pragma unroll
        for (i32 h = 0; h < 2; h++) {
            const i32 t = 16 * warp + Chunk::lane() / 4 + 8 * h;
            const float factor = Chunk::finish_length(length[h]);
            if (Chunk::lane() % 4 == 0) to.k[t] = t < count ? factor : 0.0f;
        }
    }

    // Half of the threads find a token's powers each; then, with lengths, what carries and reads.
    DEV static void find_powers(i32 thread, Numbers &of)
    {
        const i32 t = thread % chunk;
        if (thread < chunk) {
            of.grown[t] = math::exp2(of.high[t] + of.low[t]);
            of.within[t] = of.decay(t, t / 16 * 16);
            if (t == chunk - 1) of.all = of.grown[t];
        } else {
            of.later[t] = of.decay(chunk - 1, t);
#pragma unroll
            for (i32 i = 1; i < blocks; i++)
                of.across[i - 1][t] = of.decay(16 * i, t); // read where t is below 16 i
        }
    }
    DEV static void find_factors(i32 thread, Numbers &of)
    {
        const i32 t = thread % chunk;
        const float length = of.k[t];
        if (thread < chunk) {
            of.seen[t] = of.beta[t] * length * of.grown[t];
        } else {
            of.later[t] *= length;
#pragma unroll
            for (i32 i = 0; i < blocks - 1; i++) of.across[i][t] *= length;
        }
    }

    // What a warp's rows of L are multiplied by, in its block on the diagonal and in those before.
    struct Factors {
        float on[2], before[2];
    };
    DEV static Factors factors_of(i32 warp, const Numbers &of)
    {
        Factors f;
#pragma unroll
        for (i32 h = 0; h < 2; h++) {
            const i32 t = 16 * warp + Chunk::lane() / 4 + 8 * h;
            f.on[h] = of.beta[t] * of.k[t], f.before[h] = f.on[h] * of.within[t];
        }
        return f;
    }
    // Blocks of L, of products k k^T: that on the diagonal as floats, or block j of the others as three
    // parts.
    template <bool diagonal>
    DEV static void weigh(i32 warp, i32 j, const float (&sum)[2][4], const Factors &f, const Numbers &of,
                          float (&floats)[16][16], typename Chunk::Inverse &to, T *rest)
    {
        Operand high, low, third;
#pragma unroll
        for (i32 h = 0; h < 2; h++) {
            const i32 t = 16 * warp + Chunk::lane() / 4 + 8 * h;
            const float factor = diagonal ? f.on[h] : f.before[h];
#pragma unroll
            for (i32 n = 0; n < 2; n++) {
                const i32 column = 16 * j + 8 * n + 2 * (Chunk::lane() % 4), e = h + 2 * n;
                const Pair w = of.template weight<diagonal>(t, column);
                const float a = factor * w.a * sum[n][2 * h], b = factor * w.b * sum[n][2 * h + 1];
                if constexpr (diagonal)
                    port::store_pair(&floats[t % 16][column % 16],
                                     {column < t ? a : 0.0f, column + 1 < t ? b : 0.0f});
                else split_pair<T>(a, b, high[e], low[e], third[e]);
            }
        }
        if constexpr (!diagonal) {
            Chunk::store_block(to.high, 16 * warp, 16 * j, high);
            Chunk::store_block(to.low, 16 * warp, 16 * j, low);
            Chunk::store_block(rest, 16 * j, 16 * warp, third);
        }
    }

    // A lane has a column of the inverse of I + L, L of 16 x 16, a row of T^T.
    DEV static void invert(i32 warp, const float (&l)[16][16], typename Chunk::Inverse &to)
    {
        const i32 column = Chunk::lane();
        if (column >= 16) return;
        float x[16];
#pragma unroll
        for (i32 i = 0; i < 16; i++) {
            float row[16];
            port::load_piece(row, l[i]);
            float sum = i == column ? 1.0f : 0.0f;
#pragma unroll
            for (i32 j = 0; j < i; j++) sum = fmaf(-row[j], x[j], sum);
            x[i] = sum;
        }
        typename Chunk::Piece high[2], low[2];
        Pair left = {};
#pragma unroll
        for (i32 i = 0; i < 7; i++)
            split_evenly<false, T>(x[2 * i], x[2 * i + 1], left, high[i / 4].x[i % 4], low[i / 4].x[i % 4]);
        split_evenly<true, T>(x[14], x[15], left, high[1].x[3], low[1].x[3]);
#pragma unroll
        for (i32 i = 0; i < 2; i++) {
            const i32 at = Chunk::Square::offset(16 * warp + column, 16 * warp + 8 * i);
            *(typename Chunk::Piece *)((u8 *)to.high + at) = high[i];
            *(typename Chunk::Piece *)((u8 *)to.low + at) = low[i];
        }
    }

    struct Halves {
        Operand high, low;
    };
    // The sums of products of halves, apart, so that none waits for another one.
    typedef float Products[3][2][4];
    DEV static void add_product(Products &d, const Halves &a, const Operand &high, const Operand &low)
    {
        multiply<T>(d[0][0], d[0][1], a.high, high);
        multiply<T>(d[1][0], d[1][1], a.low, high);
        multiply<T>(d[2][0], d[2][1], a.high, low);
    }
    DEV static void finish_product(const Products &d, float sign, Halves &to)
    {
        float sum[2][4];
#pragma unroll
        for (i32 e = 0; e < 8; e++)
            sum[e / 4][e % 4] = sign * (d[0][e / 4][e % 4] + (d[1][e / 4][e % 4] + d[2][e / 4][e % 4]));
        split_results<T>(sum[0], sum[1], to.high, to.low);
    }
    // Blocks of T^T's rows 16 warp on, right of the diagonal.
    DEV static void substitute(i32 warp, typename Chunk::Inverse &of, const T *rest)
    {
        typedef typename Chunk::Square Square;
        const u32 high = ptx::shared_address(of.high), low = ptx::shared_address(of.low);
        const u32 third = ptx::shared_address(rest);
        Halves x[blocks - 1];
        ptx::ldmatrix(Square::matrices(high, 16 * warp, 16 * warp, true), x[0].high);
        ptx::ldmatrix(Square::matrices(low, 16 * warp, 16 * warp, true), x[0].low);
#pragma unroll
        for (i32 d = 1; d < blocks; d++) {
            const i32 i = warp + d;
            if (i >= blocks) break;
            Products sum = {}, block = {};
            Operand b, c;
            Halves y;
#pragma unroll
            for (i32 m = 0; m < d; m++) {
                ptx::ldmatrix(Square::matrices(high, 16 * i, 16 * (warp + m), false), b);
                ptx::ldmatrix(Square::matrices(low, 16 * i, 16 * (warp + m), false), c);
                add_product(sum, x[m], b, c);
                if (m > 0) continue;
                multiply<T>(sum[1][0], sum[1][1], x[0].low, c);
                ptx::ldmatrix(Square::matrices(third, 16 * warp, 16 * i, false), b);
                multiply<T>(sum[2][0], sum[2][1], x[0].high, b);
            }
            finish_product(sum, 1.0f, y);
            ptx::ldmatrix_transposed(Square::matrices(high, 16 * i, 16 * i, true), b);
            ptx::ldmatrix_transposed(Square::matrices(low, 16 * i, 16 * i, true), c);
            add_product(block, y, b, c);
            finish_product(block, -1.0f, y);
            Chunk::store_block(of.high, 16 * warp, 16 * i, y.high);
            Chunk::store_block(of.low, 16 * warp, 16 * i, y.low);
            if (d + 1 < blocks) x[d] = y;
        }
    }

    DEV static void meet() { ptx::named_barrier(Chunk::MAKERS, threads); }

    // T of a chunk whose tokens and sums have come. The makers meet between the two halves.
    DEV static void begin(i32 warp, u32 k, i32 count, Numbers &of, typename Chunk::Rows &rows)
    {
        Chunk::load_rows(k, 16 * warp, rows);
        measure(warp, rows, count, of);
        find_powers(32 * warp + Chunk::lane(), of);
    }
    template <bool diagonal>
    DEV static void relate(i32 warp, i32 j, u32 k, const typename Chunk::Rows &rows, const Numbers &of,
                           typename Chunk::Diagonal &floats, typename Chunk::Inverse &to, T *rest)
    {
        float sum[2][4] = {};
        Chunk::relate(rows, k, 16 * j, sum);
        weigh<diagonal>(warp, j, sum, factors_of(warp, of), of, floats[warp], to, rest);
    }
    DEV static void finish(i32 warp, u32 k, const typename Chunk::Rows &rows, Numbers &of,
                           typename Chunk::Diagonal &floats, typename Chunk::Inverse &to, T *rest)
    {
        find_factors(32 * warp + Chunk::lane(), of);
        meet();
        relate<true>(warp, warp, k, rows, of, floats, to, rest);
#pragma unroll 1
        for (i32 j = 0; j < warp; j++) relate<false>(warp, j, k, rows, of, floats, to, rest);
        __syncwarp();
        invert(warp, floats[warp], to);
        meet();
        substitute(warp, to, rest);
    }
    DEV static void make(i32 warp, i32 turn, i32 stage, i32 count, Shared &shared)
    {
        const u32 k = ptx::shared_address(shared.stage[stage].k);
        typename Chunk::Rows rows;
        begin(warp, k, count, shared.numbers[turn], rows);
        meet();
        finish(warp, k, rows, shared.numbers[turn], shared.diagonal, shared.inverse[turn],
               shared.weights[turn].p);
    }

    template <class Place>
    DEV static void run(const Tensors &in, const Place &at, i32 warp, u32 first, u32 end, Shared &shared)
    {
        const i32 head = at.head / Config::group, thread = 32 * warp + Chunk::lane();
        const Source of = {in.k + at.batch * in.of_k.batch + head * keys,
                           in.q + at.batch * in.of_q.batch + head * keys,
                           in.v + at.batch * in.of_v.batch + at.head * Config::values + at.column,
                           in.decay + at.batch * in.of_decay.batch + at.head,
                           in.beta + at.batch * in.of_beta.batch + at.head};
        const bool sums = warp == Chunk::makers - 1; // which has none of T's blocks to make
        Gates next;
        Sums now = {};
        i32 turn = 0, stage = 0;
        if (Chunk::ring > 1) bring(in, of, thread, first, (i32)(end - first), shared.stage[0]);
        if (sums && first < end) {
            load_gates(in, of, first, (i32)(end - first), next);
            now = sum_decays(next);
        }
#pragma unroll 1
        for (u32 row = first; row < end; row += chunk) {
            const i32 count = (i32)(end - row), more = count - chunk;
            if (row - first >= Chunk::ring * chunk)
                ptx::named_barrier(Chunk::FINISHED + turn, Chunk::threads);
            if constexpr (Chunk::ring > 1) {
                bring(in, of, thread, row + chunk, more,
                      shared.stage[stage + 1 == Chunk::stages ? 0 : stage + 1]);
                ptx::copy_async_wait<1>();
            } else {
                bring(in, of, thread, row, count, shared.stage[stage]);
                ptx::copy_async_wait<0>();
            }
            if (sums) {
                store_sums(now, shared.numbers[turn]);
                load_gates(in, of, row + chunk, more, next);
            }
            meet();
            make(warp, turn, stage, count, shared);
            if (sums) now = sum_decays(next);
            ptx::named_arrive(Chunk::READY + turn, Chunk::threads);
            Chunk::next(turn, stage);
        }
    }
};

} // namespace coda
