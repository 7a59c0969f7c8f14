// scan_chunks.cuh -- a selective scan with one decay for a head, by chunks of 64 tokens on tensor cores: the
// state space duality of Mamba-2 (Dao and Gu, arXiv 2405.21060, section 6). With D the sum of d a up to a
// token of the chunk, and S the states at its beginning,
//
//     y_i = e^(D_i) S c_i  +  the sum over j <= i of  (c_i . b_j) e^(D_i - D_j) d_j x_j
//     S'  = e^(D_64) S     +  the sum over j of  e^(D_64 - D_j) d_j x_j b_j^T
//
// Exponents are differences, which are taken before e is raised to them: quotients of powers would be 0 / 0.
// D is a sum of two floats, in units of log 2. A block has `slice` columns of a head of a sequence, whose
// states are fragments of m16n8k16 from the first chunk to the last, in fp32: they are rounded to bf16 as an
// operand of y alone, and d x e^(..) is a sum of three bf16, as long as fp32. While a chunk is computed the
// next one comes.
//
// Whoever writes an element of `after` has read it of `state`: both may be one memory.
//
// Config: as scan_steps.cuh has it, of T bf16; i32 slice, chunk; bool each is false.
#pragma once
#include "recurrent/scan_fragments.cuh"

namespace coda {

template <class Config> struct ScanChunks : ScanFragments<Config, 64 / Config::slice> {
    typedef ScanFragments<Config, 64 / Config::slice> Base;
    typedef typename Base::T T;
    typedef typename Base::Tensors Tensors;
    typedef typename Base::Place Place;
    typedef typename Base::Stage Stage;
    typedef typename Base::Steps Steps;
    typedef typename Base::States States;
    typedef typename Base::Sums Sums;
    using Base::chunk, Base::slice, Base::lane;
    static_assert(Config::threads == 32 * chunk / 16);

    struct alignas(16) Shared {
        Stage stage[2];
        T state[slice][Base::pitch];
        Steps steps;
    };
    static constexpr i32 shared_bytes = sizeof(Shared);

    // The weights of the warp's tokens and 16 others: an operand of the product with x.
    DEV static void add_within(Sums &y, i32 token, const Stage &of, const Steps &steps)
    {
#pragma unroll 1
        for (i32 j = 0; j <= token; j += 16) {
            float g[2][4] = {};
            u32 m[4];
            Base::compare(g, of, token, j);
#pragma unroll
            for (i32 n = 0; n < 2; n++)
#pragma unroll
                for (i32 h = 0; h < 2; h++) {
                    const i32 i = token + lane() / 4 + 8 * h, t = j + 8 * n + 2 * (lane() % 4);
                    const Pair w = Base::weights(g[n][2 * h], g[n][2 * h + 1], Base::decay_of(steps, i),
                                                 Base::decays_of(steps, t), i, t);
                    m[2 * n + h] = pack2<T>(w.a, w.b);
                }
            Base::add_within(y, m, of, j);
        }
    }

    // Chunk of `count` tokens from row `row` on: a warp has 16 of them, and some of the states.
    DEV static void walk(const Tensors &in, const Place &at, i32 warp, i32 row, i32 count, const Stage &of,
                         const Shared &shared, States &s)
    {
        const Steps &steps = shared.steps;
        if constexpr (Config::y) {
            Sums y = {};
            Base::add_before(y, of, 16 * warp, shared.state);
            Base::scale_rows(y, 16 * warp, steps);
            add_within(y, 16 * warp, of, steps);
            Base::store_rows(in, at, y, of, 16 * warp, 0, row, count, Config::skip ? in.skip[at.head] : 0.0f);
        }
        Base::advance(s, warp, of, steps);
    }

    template <class Block> DEV static void run(const Block &block, const Tensors &in)
    {
        Shared &shared = *reinterpret_cast<Shared *>(block.shared());
        const Place at = Base::place(in, block.index());
        const i32 warp = ptx::uniform(threadIdx.x / 32);
        States s;
        const SequenceRows of = in.find_rows(at.batch);
        const i32 first = of.first, end = of.end;
        const float a = in.a[at.head], bias = Config::bias ? in.bias[at.head] : 0.0f;
        if (first < end) Base::bring_chunk(in, at, first, min(chunk, end - first), shared.stage[0]);
        Base::load_states(in, at, warp, s);
        if (at.batch == 0) Base::clear(in, at, 0, first);
        if (at.batch + 1 >= in.sequences) Base::clear(in, at, end, in.rows);
#pragma unroll 1
        for (i32 row = first, stage = 0; row < end; row += chunk, stage ^= 1) {
            const i32 count = min(chunk, end - row), next = row + chunk;
            if (warp == 0) Base::find_steps(Base::load_step(in, at, row, end), a, bias, count, shared.steps);
            if constexpr (Config::y) Base::share_states(warp, s, shared.state);
            ptx::copy_async_wait<0>();
            __syncthreads();
            if (next < end) Base::bring_chunk(in, at, next, min(chunk, end - next), shared.stage[stage ^ 1]);
            walk(in, at, warp, row, count, shared.stage[stage], shared, s);
            __syncthreads();
        }
        Base::store_states(in, at, warp, s);
    }
};

} // namespace coda
