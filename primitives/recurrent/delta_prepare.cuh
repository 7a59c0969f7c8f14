// delta_prepare.cuh -- what of the gated delta rule by chunks does not depend on states, of all chunks at
// once: T and P, as delta_chunks.cuh has them, and the factors of its tokens, in the place of o. A block has
// a chunk of a head.
//
// Config: as delta_chunks_sm90.cuh has it, with o.
#pragma once
#include "attention/fragment.cuh"
#include "ptx/wgmma.cuh"
#include "recurrent/delta_chunks.cuh"

namespace coda {

// Of a chunk's tokens: `q` is what a row of q S is multiplied by, the others are as DeltaChunk::Numbers has
// them.
struct alignas(16) DeltaFactors {
    float beta[64], seen[64], later[64], q[64], all;
};
// Of a chunk and a head. Of T^T, the two halves of T's numbers, and of P those of their 4 x 4 blocks that may
// be other than 0, by pieces of 16 bytes: row by row those of T^T's first rows of blocks, which are 8, 6,
// 4 and 2 in a row; and of P's last one, and so on up.
template <class T> struct alignas(128) DeltaPrepared {
    static constexpr i32 pieces = 16 * (8 + 6 + 4 + 2);
    T high[8 * pieces], low[8 * pieces], p[8 * pieces];
    DeltaFactors factors;

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

// What one of 128 threads moves of them, and where that lies in T^T and in P, in bytes.
template <class Chunk> struct DeltaPieces {
    typedef DeltaPrepared<typename Chunk::T> Prepared;
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
    typedef DeltaPrepared<typename Config::T> Prepared;
    typedef typename Chunk::T T;
    typedef typename Chunk::Piece Piece;
    static constexpr i32 keys = Chunk::keys, chunk = Chunk::chunk, blocks = Chunk::blocks;
    static constexpr i32 threads = 128;
    static_assert(Config::o);

    // Tokens, and then, when their products are in registers, what is made of these.
    struct Made {
        typename Chunk::Inverse inverse;
        T p[chunk * chunk];
    };
    struct alignas(1024) Shared {
        union {
            struct {
                T k[chunk * keys], q[chunk * keys];
            };
            Made made;
        };
        typename Chunk::Diagonal diagonal;
        typename Chunk::Numbers numbers;
        float q_factor[chunk];
    };
    static constexpr i32 shared_bytes = sizeof(Shared);

    DEV static void bring(const Tensors &in, i64 batch, i32 head, u32 row, i32 count, Shared &to)
    {
        const i32 column = head / Config::group * keys;
        bring_rows<typename Chunk::Keys, keys, chunk, threads>(
            threadIdx.x, to.k, in.k + batch * in.of_k.batch + row * in.of_k.time + column, in.of_k.time,
            count);
        bring_rows<typename Chunk::Keys, keys, chunk, threads>(
            threadIdx.x, to.q, in.q + batch * in.of_q.batch + row * in.of_q.time + column, in.of_q.time,
            count);
        ptx::copy_async_commit();
    }
    DEV static void find_sums(const Tensors &in, i64 batch, i32 head, u32 row, i32 count, Shared &to)
    {
        const typename Solve::Source of = {nullptr, nullptr, nullptr,
                                           in.decay + batch * in.of_decay.batch + head,
                                           in.beta + batch * in.of_beta.batch + head};
        typename Solve::Gates gates;
        Solve::load_gates(in, of, row, count, gates);
        Solve::store_sums(Solve::sum_decays(gates), to.numbers);
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

    // Block j of rows 16 warp on, of L and of P, whose weights are alike; `factor` is of a row of q.
    template <bool diagonal>
    DEV static void weigh(i32 warp, i32 j, const Products &of_k, const Products &of_q,
                          const float (&factor)[2], const typename Chunk::Numbers &of,
                          float (&floats)[16][16], Made &to)
    {
#pragma unroll
        for (i32 h = 0; h < 2; h++) {
            const i32 t = 16 * warp + Chunk::lane() / 4 + 8 * h;
            const float of_row = of.beta[t] * of.k[t];
#pragma unroll
            for (i32 n = 0; n < 2; n++) {
                const i32 column = 16 * j + 8 * n + 2 * (Chunk::lane() % 4), e = 8 * j + 4 * n + 2 * h;
                const i32 at = Chunk::Square::offset(t, column);
                const Pair w = of.template weight<diagonal>(t, column);
                const float a = of_row * w.a * of_k[e], b = of_row * w.b * of_k[e + 1];
                const float c = factor[h] * w.a * of_q[e], d = factor[h] * w.b * of_q[e + 1];
                u32 &p = *reinterpret_cast<u32 *>(reinterpret_cast<u8 *>(to.p) + at);
                if constexpr (diagonal) {
                    port::store_pair(&floats[t % 16][column % 16],
                                     {column < t ? a : 0.0f, column + 1 < t ? b : 0.0f});
                    p = pack2<T>(column <= t ? c : 0.0f, column < t ? d : 0.0f);
                } else {
                    split_pair<T>(a, b, *(u32 *)((u8 *)to.inverse.high + at),
                                  *(u32 *)((u8 *)to.inverse.low + at));
                    p = pack2<T>(c, d);
                }
            }
        }
    }

    DEV static void make(i32 warp, i32 count, Shared &shared)
    {
        const u32 k = ptx::shared_address(shared.k), q = ptx::shared_address(shared.q);
        typename Chunk::Numbers &of = shared.numbers;
        Products of_k, of_q;
        float square[2], factor[2] = {};
        if constexpr (Config::norm) {
            multiply_rows(of_q, q, q);
            find_diagonal(of_q, warp, factor);
        }
        multiply_rows(of_k, k, k);
        multiply_rows(of_q, q, k);
        find_diagonal(of_k, warp, square);
        Solve::find_powers(threadIdx.x, of);
#pragma unroll
        for (i32 h = 0; h < 2; h++) {
            const i32 t = 16 * warp + Chunk::lane() / 4 + 8 * h;
            const float of_t = __shfl_sync(~0u, factor[h], Chunk::lane() / 4 * 4 + owner());
            factor[h] = Config::scale * length(of_t);
            if (Chunk::lane() % 4 == owner()) of.k[t] = t < count ? length(square[h]) : 0.0f;
        }
        __syncthreads();
        Solve::find_factors(threadIdx.x, of);
#pragma unroll
        for (i32 h = 0; h < 2; h++) {
            const i32 t = 16 * warp + Chunk::lane() / 4 + 8 * h;
            if (Chunk::lane() % 4 == 0) shared.q_factor[t] = factor[h] * of.grown[t];
        }
#pragma unroll
        for (i32 j = 0; j < blocks; j++) {
            if (j < warp) weigh<false>(warp, j, of_k, of_q, factor, of, shared.diagonal[warp], shared.made);
            if (j == warp) weigh<true>(warp, j, of_k, of_q, factor, of, shared.diagonal[warp], shared.made);
        }
        Solve::solve(warp, shared.diagonal, shared.made.inverse);
    }

    DEV static void move(const T *from, i32 bytes, T *to, i32 piece)
    {
        reinterpret_cast<Piece *>(to)[piece] =
            *reinterpret_cast<const Piece *>(reinterpret_cast<const u8 *>(from) + bytes);
    }
    DEV static void leave_all(const Shared &from, Prepared &to)
    {
        const DeltaPieces<Chunk> of_thread(threadIdx.x);
#pragma unroll
        for (i32 i = 0; i < of_thread.own; i++) {
            if (!of_thread.has(i)) continue;
            const i32 piece = of_thread.piece(i);
            move(from.made.inverse.high, of_thread.t[i], to.high, piece);
            move(from.made.inverse.low, of_thread.t[i], to.low, piece);
            move(from.made.p, of_thread.p[i], to.p, piece);
        }
        const i32 t = threadIdx.x % chunk;
        DeltaFactors &of = to.factors;
        if (threadIdx.x < chunk) of.beta[t] = from.numbers.beta[t], of.seen[t] = from.numbers.seen[t];
        else of.later[t] = from.numbers.later[t], of.q[t] = from.q_factor[t];
        if (threadIdx.x == 0) of.all = from.numbers.all;
    }

    template <class Block> DEV static void run(const Block &block, const Tensors &in)
    {
        Shared &shared = *reinterpret_cast<Shared *>(block.shared());
        const u32 part = block.index() / Config::heads;
        const i32 head = block.index() % Config::heads, warp = ptx::uniform(threadIdx.x / 32);
        const SequenceRows of = DeltaParts<Config>::rows_of(in, part);
        if (of.index < 0 || of.first >= of.end) return;
        const i64 batch = Config::packed ? 0 : of.index;
        const i32 count = (i32)min(of.end - of.first, (u32)chunk);
        bring(in, batch, head, of.first, count, shared);
        if (warp == 0) find_sums(in, batch, head, of.first, count, shared);
        ptx::copy_async_wait<0>();
        ptx::fence_async_shared();
        __syncthreads();
        make(warp, count, shared);
        __syncthreads();
        leave_all(shared, reinterpret_cast<Prepared *>(in.o)[(i64)part * Config::heads + head]);
    }
};

} // namespace coda
