// delta_solve.cuh -- of the gated delta rule by chunks: what warps of a block share, and the four warps that
// bring tokens and make T = (I + L)^-1 of a chunk.
//
// L's blocks of 16 x 16 on the diagonal are inverted in fp32 by substitution, a column each thread; those
// below follow, a column of blocks a warp, from the sums over blocks above:
//
//     T_ij = - T_ii (the sum of L_im T_mj over j <= m < i)
//
// Powers of L, by whose squares its inverse could be made, grow before they vanish where keys repeat. What is
// multiplied is the sum of two bf16. T^T lies in shared memory, which has its blocks on and above the
// diagonal; in the others lies L.
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
    static_assert(sizeof(T) == 2 && !Config::by_row && (ring == 1 || ring == 2) && makers == blocks);
    static_assert(Config::values % slice == 0 && (slice == 32 || slice == 64));

    typedef MatrixTile<T, keys> Keys;
    typedef MatrixTile<T, slice> Values;
    typedef MatrixTile<T, chunk> Square;

    struct alignas(16) Piece {
        u32 x[4];
    };
    struct alignas(128) Stage {
        T k[chunk * keys], q[chunk * keys], v[chunk * slice];
    };
    struct alignas(128) Inverse {
        T high[chunk * chunk], low[chunk * chunk];
    };
    struct alignas(128) Weights {
        T p[chunk * chunk];
        float q[chunk];
    };
    // Of tokens: `high` and `low` are G, `k` one over its length, `grown` e^G, `seen` what k S is multiplied
    // by, `later` what N is for S, and `all` what S is.
    struct alignas(16) Numbers {
        float beta[chunk], high[chunk], low[chunk], k[chunk], grown[chunk], seen[chunk], later[chunk], all;

        // e^(G_i - G_j).
        DEV float decay(i32 i, i32 j) const { return math::exp((high[i] - high[j]) + (low[i] - low[j])); }
    };
    // Operands of a warp that carries for one that reads: S ahead of the chunk, N. Then o.
    struct alignas(128) Left {
        Piece state[keys / 16][32], change[blocks][32];
    };
    struct Shared {
        Stage stage[stages];
        Inverse inverse[ring];
        Weights weights[ring];
        Left left[ring][readers ? readers : 1];
        float diagonal[blocks][16][16];
        Numbers numbers[ring];
    };

    enum { MAKERS = 1, READERS, READY, FINISHED = READY + 2, LEFT = FINISHED + 2 };
    static_assert(LEFT + 2 * parts <= 16, "barriers");

    DEV static i32 lane() { return threadIdx.x % 32; }
    DEV static i32 left_barrier(i32 turn, i32 warp) { return LEFT + turn * parts + warp; }
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

    DEV static void leave(Piece *to, const Operand &x) { to[lane()] = {x[0], x[1], x[2], x[3]}; }
    DEV static void find(const Piece (&from)[32], Operand &x)
    {
        const Piece p = from[lane()];
#pragma unroll
        for (i32 i = 0; i < 4; i++) x[i] = p.x[i];
    }

    // Of rows lane / 4 and 8 below, whose elements four lanes have.
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
    // Of two neighbouring tokens.
    struct Gates {
        float decay[2], beta[2];
    };

    template <class Tile, i32 n>
    DEV static void bring_rows(i32 thread, T *to, const T *from, i64 time, i32 count)
    {
        const u32 at = ptx::shared_address(to);
#pragma unroll
        for (i32 i = 0; i < chunk * n / 8; i += threads) {
            const i32 t = (i + thread) / (n / 8), c = (i + thread) % (n / 8) * 8;
            ptx::copy_async<16>(at + Tile::offset(t, c), t < count ? from + t * time + c : from,
                                t < count ? 16 : 0);
        }
    }
    DEV static void bring(const Tensors &in, const Source &of, i32 thread, u32 row, i32 count,
                          typename Chunk::Stage &to)
    {
        if (count > 0) {
            bring_rows<typename Chunk::Keys, keys>(thread, to.k, of.k + row * in.of_k.time, in.of_k.time,
                                                   count);
            if constexpr (Config::o)
                bring_rows<typename Chunk::Keys, keys>(thread, to.q, of.q + row * in.of_q.time, in.of_q.time,
                                                       count);
            bring_rows<typename Chunk::Values, Config::slice>(thread, to.v, of.v + row * in.of_v.time,
                                                              in.of_v.time, count);
        }
        ptx::copy_async_commit();
    }
    // Less than -128 is nothing in fp32, too, and has differences.
    DEV static void load_gates(const Tensors &in, const Source &of, u32 row, i32 count, Gates &to)
    {
#pragma unroll
        for (i32 i = 0; i < 2; i++) {
            const i32 t = 2 * Chunk::lane() + i;
            to.decay[i] = t < count ? to_float(of.decay[(row + t) * in.of_decay.time]) : 0.0f;
            to.beta[i] = t < count ? to_float(of.beta[(row + t) * in.of_beta.time]) : 0.0f;
            if (to.decay[i] < -128.0f) to.decay[i] = -128.0f;
        }
    }

    // A warp: the sums of decays, in fp64.
    DEV static void sum_decays(const Gates &of, Numbers &to)
    {
        const double first = of.decay[0], both = first + (double)of.decay[1];
        double all = both;
#pragma unroll
        for (i32 w = 1; w < 32; w *= 2) {
            const i32 from = max(Chunk::lane() - w, 0);
            const float high = (float)all, low = (float)(all - (double)high);
            const float h = __shfl_sync(~0u, high, from), l = __shfl_sync(~0u, low, from);
            all += Chunk::lane() < w ? 0.0 : (double)h + (double)l;
        }
#pragma unroll
        for (i32 i = 0; i < 2; i++) {
            const i32 t = 2 * Chunk::lane() + i;
            const double sum = i ? all : all - (double)of.decay[1];
            to.beta[t] = of.beta[i];
            to.high[t] = (float)sum, to.low[t] = (float)(sum - (double)to.high[t]);
        }
    }

    // k k^T of the warp's tokens and those up to them; their lengths.
    DEV static void relate(i32 warp, u32 k, i32 count, float (&sum)[2 * blocks][4], Numbers &to)
    {
        float length[2] = {};
#pragma unroll
        for (i32 i = 0; i < keys; i += 16) {
            Operand a, b;
            ptx::ldmatrix(Chunk::Keys::matrices(k, 16 * warp, i, true), a);
            if constexpr (Config::norm) Chunk::add_squares(a, length);
#pragma unroll
            for (i32 j = 0; j < blocks; j++)
                if (j <= warp) {
                    ptx::ldmatrix(Chunk::Keys::matrices(k, 16 * j, i, false), b);
                    multiply<T>(sum[2 * j], sum[2 * j + 1], a, b);
                }
        }
#pragma unroll
        for (i32 h = 0; h < 2; h++) {
            const i32 t = 16 * warp + Chunk::lane() / 4 + 8 * h;
            const float factor = Chunk::finish_length(length[h]);
            if (Chunk::lane() % 4 == 0) to.k[t] = t < count ? factor : 0.0f;
        }
    }

    DEV static void find_factors(i32 t, Numbers &of)
    {
        const float grown = math::exp(of.high[t] + of.low[t]);
        of.grown[t] = grown;
        of.seen[t] = of.beta[t] * of.k[t] * grown;
        of.later[t] = of.k[t] * of.decay(chunk - 1, t);
        if (t == chunk - 1) of.all = grown;
    }

    // L: the block on the diagonal as floats, the others as two halves.
    DEV static void weigh(i32 warp, const float (&sum)[2 * blocks][4], const Numbers &of,
                          float (&diagonal)[16][16], typename Chunk::Inverse &to)
    {
        u8 *const high = (u8 *)to.high, *const low = (u8 *)to.low;
#pragma unroll
        for (i32 h = 0; h < 2; h++) {
            const i32 t = 16 * warp + Chunk::lane() / 4 + 8 * h;
            const float factor = of.beta[t] * of.k[t];
#pragma unroll
            for (i32 n = 0; n < 2 * blocks; n++) {
                const i32 j = 8 * n + 2 * (Chunk::lane() % 4);
                if (n / 2 > warp) continue;
                float a = factor * of.k[j] * of.decay(t, j) * sum[n][2 * h];
                float b = factor * of.k[j + 1] * of.decay(t, j + 1) * sum[n][2 * h + 1];
                if (n / 2 == warp) {
                    port::store_pair(&diagonal[t % 16][j % 16], {j < t ? a : 0.0f, j + 1 < t ? b : 0.0f});
                } else {
                    const i32 at = Chunk::Square::offset(t, j);
                    split_pair<T>(a, b, *(u32 *)(high + at), *(u32 *)(low + at));
                }
            }
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
            float sum = i == column ? 1.0f : 0.0f;
#pragma unroll
            for (i32 j = 0; j < i; j++) sum = fmaf(-l[i][j], x[j], sum);
            x[i] = sum;
        }
#pragma unroll
        for (i32 i = 0; i < 16; i += 8) {
            typename Chunk::Piece high, low;
            const i32 at = Chunk::Square::offset(16 * warp + column, 16 * warp + i);
#pragma unroll
            for (i32 j = 0; j < 4; j++) split_pair<T>(x[i + 2 * j], x[i + 2 * j + 1], high.x[j], low.x[j]);
            *(typename Chunk::Piece *)((u8 *)to.high + at) = high;
            *(typename Chunk::Piece *)((u8 *)to.low + at) = low;
        }
    }

    struct Halves {
        Operand high, low;
    };
    DEV static void add_product(float (&d)[2][4], const Halves &a, const Operand &high, const Operand &low)
    {
        multiply<T>(d[0], d[1], a.high, low);
        multiply<T>(d[0], d[1], a.low, high);
        multiply<T>(d[0], d[1], a.high, high);
    }
    // Blocks of T^T's rows 16 warp on, right of the diagonal.
    DEV static void substitute(i32 warp, typename Chunk::Inverse &of)
    {
        typedef typename Chunk::Square Square;
        const u32 high = ptx::shared_address(of.high), low = ptx::shared_address(of.low);
        Halves x[blocks - 1];
        ptx::ldmatrix(Square::matrices(high, 16 * warp, 16 * warp, true), x[0].high);
        ptx::ldmatrix(Square::matrices(low, 16 * warp, 16 * warp, true), x[0].low);
#pragma unroll
        for (i32 d = 1; d < blocks; d++) {
            const i32 i = warp + d;
            if (i >= blocks) break;
            float sum[2][4] = {}, block[2][4] = {};
            Operand b, c;
            Halves y;
#pragma unroll
            for (i32 m = 0; m < d; m++) {
                ptx::ldmatrix(Square::matrices(high, 16 * i, 16 * (warp + m), false), b);
                ptx::ldmatrix(Square::matrices(low, 16 * i, 16 * (warp + m), false), c);
                add_product(sum, x[m], b, c);
            }
            split_results<T>(sum[0], sum[1], y.high, y.low);
            ptx::ldmatrix_transposed(Square::matrices(high, 16 * i, 16 * i, true), b);
            ptx::ldmatrix_transposed(Square::matrices(low, 16 * i, 16 * i, true), c);
            add_product(block, y, b, c);
#pragma unroll
            for (i32 e = 0; e < 8; e++) block[e / 4][e % 4] = -block[e / 4][e % 4];
            split_results<T>(block[0], block[1], y.high, y.low);
#pragma unroll
            for (i32 e = 0; e < 4; e++) {
                const i32 at = Square::offset(16 * warp + Chunk::lane() / 4 + e % 2 * 8,
                                              16 * i + 2 * (Chunk::lane() % 4) + e / 2 * 8);
                *(u32 *)((u8 *)of.high + at) = y.high[e], *(u32 *)((u8 *)of.low + at) = y.low[e];
            }
            if (d + 1 < blocks) x[d] = y;
        }
    }

    DEV static void meet() { ptx::named_barrier(Chunk::MAKERS, threads); }

    DEV static void make(i32 warp, i32 turn, i32 stage, i32 count, const Gates &gates, Shared &shared)
    {
        float sum[2 * blocks][4] = {};
        Numbers &of = shared.numbers[turn];
        if (warp == 0) sum_decays(gates, of);
        relate(warp, ptx::shared_address(shared.stage[stage].k), count, sum, of);
        meet();
        if (warp < 2) find_factors(32 * warp + Chunk::lane(), of);
        weigh(warp, sum, of, shared.diagonal[warp], shared.inverse[turn]);
        __syncwarp();
        invert(warp, shared.diagonal[warp], shared.inverse[turn]);
        meet();
        substitute(warp, shared.inverse[turn]);
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
        Gates gates, next;
        i32 turn = 0, stage = 0;
        if (Chunk::ring > 1) bring(in, of, thread, first, (i32)(end - first), shared.stage[0]);
        if (warp == 0) load_gates(in, of, first, (i32)(end - first), next);
#pragma unroll 1
        for (u32 row = first; row < end; row += chunk) {
            const i32 count = (i32)(end - row), more = count - chunk;
            if (row - first >= Chunk::ring * chunk)
                ptx::named_barrier(Chunk::FINISHED + turn, Chunk::threads);
            gates = next;
            if constexpr (Chunk::ring > 1) {
                bring(in, of, thread, row + chunk, more,
                      shared.stage[stage + 1 == Chunk::stages ? 0 : stage + 1]);
                ptx::copy_async_wait<1>();
            } else {
                bring(in, of, thread, row, count, shared.stage[stage]);
                ptx::copy_async_wait<0>();
            }
            if (warp == 0) load_gates(in, of, row + chunk, more, next);
            meet();
            make(warp, turn, stage, count, gates, shared);
            ptx::named_arrive(Chunk::READY + turn, Chunk::threads);
            Chunk::next(turn, stage);
        }
    }
};

} // namespace coda
