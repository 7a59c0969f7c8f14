// delta_prepare.cuh -- what of the gated delta rule by chunks does not depend on states, of all chunks at
// once: T, as delta_chunks.cuh has it, what is known of a chunk's tokens, and P if Config::with_p, in the
// place of o.
// A block has a chunk of a head; or, with P, of two that share keys: there a warpgroup multiplies k k^T and
// makes L of both, another one q k^T and P, and then each has a head whose T it makes.
//
// Config: as delta_chunks_sm90.cuh has it, with o.
#pragma once
#include "attention/fragment.cuh"
#include "ptx/wgmma.cuh"
#include "recurrent/delta_chunks.cuh"

namespace coda {

// Of a chunk's tokens, where P is made: `q` is what a row of q S is multiplied by, the others are as
// DeltaChunk::Numbers has them.
struct alignas(16) DeltaFactors {
    float beta[64], seen[64], later[64], q[64], all;
};
// All of them, of which `grown` becomes q. Who carries asks both alike.
template <class Numbers> struct DeltaNumbers : Numbers {
};
DEV const float *factors_of_q(const DeltaFactors &of) { return of.q; }
template <class Numbers> DEV const float *factors_of_q(const DeltaNumbers<Numbers> &of) { return of.grown; }

// Of a chunk and a head. Of T^T, the two halves of T's numbers, and of P those of their 4 x 4 blocks that may
// be other than 0, by pieces of 16 bytes: row by row those of T^T's first rows of blocks, which are 8, 6,
// 4 and 2 in a row; and of P's last one, and so on up.
template <class Chunk, bool with_p> struct DeltaPrepared;
template <class Chunk> struct alignas(128) DeltaPrepared<Chunk, true> {
    static constexpr i32 pieces = 16 * (8 + 6 + 4 + 2);
    typedef DeltaFactors Numbers;
    typename Chunk::T high[8 * pieces], low[8 * pieces], p[8 * pieces];
    Numbers numbers;

    // The place of a piece in a matrix of 64 x 64, in bytes.
    template <class Square, bool upper> DEV static i32 place(i32 piece)
    {
        const i32 block = (piece >= 128) + (piece >= 224) + (piece >= 288);
        const i32 rest = piece - 16 * block * (9 - block), many = 8 - 2 * block;
        const i32 row = block == 1 ? rest / 6 : rest >> (3 - (block + 1) / 2), column = rest - row * many;
        return upper ? Square::offset(16 * block + row, 16 * block + 8 * column)
                     : Square::offset(16 * (3 - block) + row, 8 * column);
    }
};
template <class Chunk> struct alignas(128) DeltaPrepared<Chunk, false> {
    static constexpr i32 pieces = DeltaPrepared<Chunk, true>::pieces;
    typedef DeltaNumbers<typename Chunk::Numbers> Numbers;
    typename Chunk::T high[8 * pieces], low[8 * pieces];
    Numbers numbers;
};

// What one of 128 threads moves of them, and where that lies in T^T and in P, in bytes.
template <class Chunk> struct DeltaPieces {
    typedef DeltaPrepared<Chunk, true> Prepared;
    static constexpr i32 threads = 128, own = (Prepared::pieces + threads - 1) / threads;
    i32 thread, t[own], p[own];

    DEV i32 piece(i32 i) const { return thread + threads * i; }
    DEV bool has(i32 i) const { return Prepared::pieces % threads == 0 || piece(i) < Prepared::pieces; }
    DEV explicit DeltaPieces(i32 of) : thread(of % threads)
    {
#pragma unroll
        for (i32 i = 0; i < own; i++) {
            const i32 at = min(piece(i), Prepared::pieces - 1);
            t[i] = Prepared::template place<typename Chunk::Square, true>(at);
            p[i] = Prepared::template place<typename Chunk::Square, false>(at);
        }
    }
};

// Chunks of all sequences in a row: packed, those of sequence b from its first row / 64 + b on, as many as
// fit there at most.
template <class Config> struct DeltaParts {
    typedef DeltaTensors<Config> Tensors;
    static constexpr u32 chunk = 64;
    DEV static u32 chunks(const Tensors &in) { return (in.time + chunk - 1) / chunk; }
    DEV static u32 first(const Tensors &in, const SequenceRows &of)
    {
        return Config::packed ? of.first / chunk + of.index : of.index * chunks(in);
    }
    // The rows of the sequence that part `index` is of, from the part's first row on.
    DEV static SequenceRows rows_of(const Tensors &in, u32 index)
    {
        SequenceRows of = {0, 0, in.time};
        if constexpr (Config::packed) of = in.packed().find_part(index, chunk);
        else of.index = index / chunks(in);
        if (of.index >= 0) of.first += (index - first(in, of)) * chunk;
        return of;
    }
};

template <class Config> struct DeltaPrepare {
    typedef DeltaChunk<Config> Chunk;
    typedef DeltaSolve<Config> Solve;
    typedef DeltaRead<Config> Read;
    typedef DeltaTensors<Config> Tensors;
    typedef DeltaPrepared<Chunk, Config::with_p> Prepared;
    typedef typename Chunk::T T;
    typedef typename Chunk::Piece Piece;
    static constexpr i32 keys = Chunk::keys, chunk = Chunk::chunk, blocks = Chunk::blocks;
    static constexpr bool with_p = Config::with_p;
    static constexpr i32 together = with_p && Config::group % 2 == 0 ? 2 : 1; // heads of a block
    static constexpr i32 threads = 128 * together;
    static constexpr i32 own = 2 / together; // products of a warpgroup, of keys and then of queries
    static_assert(Config::o);

    // Tokens, and then, when their products are in registers, what is made of these for each head.
    struct Made {
        typename Chunk::Inverse inverse;
        T p[chunk * chunk];
    };
    struct Head {
        typename Chunk::Diagonal diagonal;
        typename Chunk::Numbers numbers;
        float q_factor[with_p ? chunk : 1];
    };
    struct alignas(1024) Shared {
        union {
            struct {
                T k[chunk * keys], q[with_p ? chunk * keys : 8];
            };
            Made made[together];
        };
        Head head[together];
    };
    static constexpr i32 shared_bytes = sizeof(Shared);

    DEV static void bring(const Tensors &in, i64 batch, i32 head, u32 row, i32 count, Shared &to)
    {
        const i32 column = head / Config::group * keys;
        bring_rows<typename Chunk::Keys, keys, chunk, threads>(
            threadIdx.x, to.k, in.k + batch * in.of_k.batch + row * in.of_k.time + column, in.of_k.time,
            count);
        if constexpr (with_p)
            bring_rows<typename Chunk::Keys, keys, chunk, threads>(
                threadIdx.x, to.q, in.q + batch * in.of_q.batch + row * in.of_q.time + column, in.of_q.time,
                count);
        ptx::copy_async_commit();
    }
    DEV static void find_sums(const Tensors &in, i64 batch, i32 head, u32 row, i32 count,
                              typename Chunk::Numbers &to)
    {
        const typename Solve::Source of = {nullptr, nullptr, nullptr,
                                           in.decay + batch * in.of_decay.batch + head,
                                           in.beta + batch * in.of_beta.batch + head};
        typename Solve::Gates gates;
        Solve::load_gates(in, of, row, count, gates);
        Solve::store_sums(Solve::sum_decays(gates), to);
    }

    // The products of 64 rows and 64 others, of which a warp has 16 rows.
    typedef float Products[chunk / 2];
    DEV static void multiply_rows(Products &d, u32 a, u32 b)
    {
        pin(d);
        ptx::wgmma_fence();
#pragma unroll
        for (i32 k = 0; k < keys / 64; k++)
            ptx::Wgmma<T, chunk>::template mma<0, 0>(
                d, ptx::wgmma_descriptor_behind(a >> 4, k * Chunk::Keys::part_bytes, 16),
                ptx::wgmma_descriptor_behind(b >> 4, k * Chunk::Keys::part_bytes, 16), k);
        ptx::wgmma_commit();
        ptx::wgmma_wait<0>();
        pin(d);
    }
    // Elements (t, t) of rows lane / 4 and 8 below, which one of four lanes has.
    DEV static i32 owner() { return Chunk::lane() / 4 / 2; }
    DEV static void find_diagonal(const Products &d, i32 warp, float (&to)[2])
    {
#pragma unroll
        for (i32 h = 0; h < 2; h++) {
            to[h] = 0.0f;
#pragma unroll
            for (i32 w = 0; w < blocks; w++)
                if (w == warp) to[h] = Chunk::lane() / 4 % 2 ? d[8 * w + 6 * h + 1] : d[8 * w + 6 * h];
        }
    }
    DEV static float length(float square) { return Config::norm ? math::rsqrt(square + Config::eps) : 1.0f; }
    DEV static void block_of(const Products &d, i32 j, float (&to)[2][4])
    {
#pragma unroll
        for (i32 e = 0; e < 8; e++) to[e / 4][e % 4] = d[8 * j + e];
    }
    // The blocks of a warp's rows: those before the diagonal, and then the one on it.
    template <class Before, class On>
    DEV static void each_block(i32 warp, const Products &d, const Before &before, const On &on)
    {
        float sum[2][4];
#pragma unroll
        for (i32 j = 0; j < blocks - 1; j++) {
            block_of(d, j, sum);
            if (j < warp) before(sum, j);
        }
        block_of(d, 0, sum);
#pragma unroll
        for (i32 j = 1; j < blocks; j++)
            if (j == warp) { // a branch, where the compiler would choose eight times
                block_of(d, j, sum);
                pin(sum[0]), pin(sum[1]);
            }
        on(sum);
    }
    // Row lane / 4 of a warp, or the one 8 below.
    DEV static i32 row(i32 warp, i32 half) { return 16 * warp + Chunk::lane() / 4 + 8 * half; }

    // k k^T, and one over the lengths of keys.
    DEV static void multiply_keys(i32 warp, i32 count, Products &d, Shared &shared)
    {
        const u32 k = ptx::shared_address(shared.k);
        float square[2];
        multiply_rows(d, k, k);
        find_diagonal(d, warp, square);
#pragma unroll
        for (i32 h = 0; h < 2; h++) {
            const i32 t = row(warp, h);
            const float of_t = t < count ? length(square[h]) : 0.0f;
#pragma unroll
            for (i32 i = 0; i < together; i++)
                if (Chunk::lane() % 4 == owner()) shared.head[i].numbers.k[t] = of_t;
        }
    }
    // q k^T, and the factors of its rows.
    DEV static void multiply_queries(i32 warp, Products &d, float (&factor)[2], Shared &shared)
    {
        const u32 k = ptx::shared_address(shared.k), q = ptx::shared_address(shared.q);
        float square[2] = {};
        if constexpr (Config::norm) {
            multiply_rows(d, q, q);
            find_diagonal(d, warp, square);
        }
        multiply_rows(d, q, k);
#pragma unroll
        for (i32 h = 0; h < 2; h++)
            factor[h] = Config::scale * length(__shfl_sync(~0u, square[h], Chunk::lane() / 4 * 4 + owner()));
    }

    // A warp's rows of L, and of P.
    DEV static void weigh_keys(i32 warp, const Products &d, Head &of, Made &to)
    {
        float(&floats)[16][16] = of.diagonal[warp];
        const typename Solve::Factors f = Solve::factors_of(warp, of.numbers);
        each_block(
            warp, d,
            [&](const float(&sum)[2][4], i32 j) {
                Solve::template weigh<false>(warp, j, sum, f, of.numbers, floats, to.inverse, to.p);
            },
            [&](const float(&sum)[2][4]) {
                Solve::template weigh<true>(warp, warp, sum, f, of.numbers, floats, to.inverse, to.p);
            });
    }
    DEV static void weigh_queries(i32 warp, const Products &d, const float (&factor)[2], Head &of, Made &to)
    {
        float before[2];
#pragma unroll
        for (i32 h = 0; h < 2; h++) {
            before[h] = factor[h] * of.numbers.within[row(warp, h)];
            if (Chunk::lane() % 4 == 0)
                of.q_factor[row(warp, h)] = factor[h] * of.numbers.grown[row(warp, h)];
        }
        each_block(
            warp, d,
            [&](const float(&sum)[2][4], i32 j) {
                Read::template weigh<false>(warp, j, sum, before, of.numbers, to.p);
            },
            [&](const float(&sum)[2][4]) {
                Read::template weigh<true>(warp, warp, sum, factor, of.numbers, to.p);
            });
    }

    // Who has multiplied queries, which takes less, makes T of the head whose L is there first.
    DEV static i32 solved(i32 group) { return together == 1 ? 0 : 1 - group; }
    enum { LEFT_L = 3, LEFT_P = 4 }; // barriers besides: L of the first head is there, P of both
    // A barrier whose number only the run knows makes a block hold all 16, of which an SM has 64.
    DEV static void meet(i32 group) { together == 1 ? __syncthreads() : ptx::named_barrier(1 + group, 128); }
    DEV static void make(i32 group, i32 warp, i32 count, Shared &shared)
    {
        const bool of_keys = together == 1 || group == 0;
        const bool of_queries = with_p && (together == 1 || group == 1);
        Products d[own];
        float factor[2];
        if (of_keys) multiply_keys(warp, count, d[0], shared);
        if (of_queries) multiply_queries(warp, d[own - 1], factor, shared);
        __syncthreads();
        Solve::find_powers(threadIdx.x % 128, shared.head[group].numbers);
        Solve::find_factors(threadIdx.x % 128, shared.head[group].numbers);
        __syncthreads();
#pragma unroll 1
        for (i32 i = 0; i < together; i++) {
            if (of_keys) weigh_keys(warp, d[0], shared.head[i], shared.made[i]);
            if (of_queries) weigh_queries(warp, d[own - 1], factor, shared.head[i], shared.made[i]);
            if (together == 2 && group == 0 && i == 0) ptx::named_arrive(LEFT_L, threads);
        }
        if (together == 1 || group == 0) __syncwarp();
        else ptx::named_arrive(LEFT_P, threads), ptx::named_barrier(LEFT_L, threads);
        const i32 of = solved(group);
        Made &made = shared.made[of];
        Solve::invert(warp, shared.head[of].diagonal[warp], made.inverse);
        meet(group);
        Solve::substitute(warp, made.inverse, made.p);
        if (together == 2 && group == 0) ptx::named_barrier(LEFT_P, threads);
        else meet(group);
    }

    DEV static void move(const T *from, i32 bytes, T *to, i32 piece)
    {
        reinterpret_cast<Piece *>(to)[piece] =
            *reinterpret_cast<const Piece *>(reinterpret_cast<const u8 *>(from) + bytes);
    }
    // A warp has a row of blocks, as DeltaPrepared has them, two threads a row of it.
    DEV static void leave_all(i32 warp, const Made &from, const Head &head, Prepared &to)
    {
        const i32 row = Chunk::lane() / 2, half = Chunk::lane() % 2, many = 8 - 2 * warp;
        const i32 first = 16 * warp * (9 - warp) + row * many + half;
#pragma unroll
        for (i32 i = 0; i < blocks; i++) {
            if (i >= blocks - warp) break;
            const i32 t = Chunk::Square::offset(16 * warp + row, 16 * warp + 16 * i + 8 * half);
            move(from.inverse.high, t, to.high, first + 2 * i);
            move(from.inverse.low, t, to.low, first + 2 * i);
            if constexpr (with_p)
                move(from.p, Chunk::Square::offset(16 * (3 - warp) + row, 16 * i + 8 * half), to.p,
                     first + 2 * i);
        }
        leave_numbers(threadIdx.x % 128, head, to.numbers);
    }
    DEV static void leave_numbers(i32 thread, const Head &head, DeltaFactors &of)
    {
        const i32 t = thread % chunk;
        if (thread < chunk) of.beta[t] = head.numbers.beta[t], of.seen[t] = head.numbers.seen[t];
        else of.later[t] = head.numbers.later[t], of.q[t] = head.q_factor[t];
        if (thread == 0) of.all = head.numbers.all;
    }
    DEV static void leave_numbers(i32 thread, const Head &head, DeltaNumbers<typename Chunk::Numbers> &of)
    {
        for (i32 i = thread; i < (i32)sizeof of / 16; i += 128)
            reinterpret_cast<Piece *>(&of)[i] = reinterpret_cast<const Piece *>(&head.numbers)[i];
    }

    template <class Block> DEV static void run(const Block &block, const Tensors &in)
    {
        Shared &shared = *reinterpret_cast<Shared *>(block.shared());
        constexpr u32 of_chunk = Config::heads / together;
        const u32 part = block.index() / of_chunk;
        const i32 all = ptx::uniform(threadIdx.x / 32), group = all / 4, warp = all % 4;
        const i32 head = block.index() % of_chunk * together + group;
        const SequenceRows of = DeltaParts<Config>::rows_of(in, part);
        if (of.index < 0 || of.first >= of.end) return;
        const i64 batch = Config::packed ? 0 : of.index;
        const i32 count = (i32)min(of.end - of.first, (u32)chunk);
        bring(in, batch, head, of.first, count, shared);
        if (warp == 0) find_sums(in, batch, head, of.first, count, shared.head[group].numbers);
        ptx::copy_async_wait<0>();
        ptx::fence_async_shared();
        __syncthreads();
        make(group, warp, count, shared);
        const i32 of_head = solved(group);
        leave_all(warp, shared.made[of_head], shared.head[of_head],
                  reinterpret_cast<Prepared *>(in.o)[(i64)part * Config::heads + head - group + of_head]);
    }
};

} // namespace coda
