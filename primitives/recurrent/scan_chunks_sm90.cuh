// scan_chunks_sm90.cuh -- scan_chunks.cuh where a block may have more shared memory: warps of three kinds
// work on neighbouring chunks at the same time, and meet once a chunk. Two for each 16 columns hold states,
// in fp32, and make those behind chunk i. Four have 16 tokens of it each, and find y from the states ahead of
// it, which the others have left in bf16, and from the weights of its tokens. Four find these weights of
// chunk i + 1, c . b e^(D_i - D_j) d_j, and the sums D of chunk i + 2.
//
// Config: as scan_steps.cuh has it, of T bf16; i32 slice, chunk; bool each is false.
#pragma once
#include "recurrent/scan_fragments.cuh"

namespace coda {

template <class Config> struct ScanChunksSm90 : ScanFragments<Config, 2> {
    typedef ScanFragments<Config, 2> Base;
    typedef typename Base::T T;
    typedef typename Base::Tensors Tensors;
    typedef typename Base::Place Place;
    typedef typename Base::Stage Stage;
    typedef typename Base::States States;
    typedef typename Base::Sums Sums;
    typedef typename Base::Step Step;
    typedef typename Base::Steps Steps;
    using Base::chunk, Base::slice, Base::lane, Base::pitch;
    static constexpr i32 makers = 4, weighers = 4, keepers = slice / 8, stages = 3;
    static constexpr i32 blocks = 4 * 5 / 2; // of 16 x 16 weights
    static_assert(32 * (makers + weighers + keepers) == Config::threads);

    struct alignas(16) Shared {
        Stage stage[stages];
        T state[2][slice][pitch], weight[2][chunk][chunk + 8];
        Steps steps[stages];
    };
    static constexpr i32 shared_bytes = sizeof(Shared);

    // ---- Weights ----

    DEV static void weigh(const Stage &of, const Steps &steps, i32 block, T (&to)[chunk][chunk + 8])
    {
        const i32 bi = block < 1 ? 0 : block < 3 ? 1 : block < 6 ? 2 : 3, bj = block - bi * (bi + 1) / 2;
        float g[2][4] = {};
        Base::compare(g, of, 16 * bi, 16 * bj);
#pragma unroll
        for (i32 h = 0; h < 2; h++) {
#pragma unroll
            for (i32 n = 0; n < 2; n++) {
                const i32 i = 16 * bi + lane() / 4 + 8 * h, j = 16 * bj + 8 * n + 2 * (lane() % 4);
                port::store_pair(&to[i][j], Base::weights(g[n][2 * h], g[n][2 * h + 1], steps, i, j));
            }
        }
    }

    // ---- y of 16 tokens ----

    DEV static void make(const Tensors &in, const Place &at, const Stage &of, const Steps &steps, i32 token,
                         const T (&state)[slice][pitch], const T (&weight)[chunk][chunk + 8], i32 row,
                         i32 count)
    {
        Sums y = {};
        Base::add_before(y, of, token, state);
        Base::scale_rows(y, token, steps);
#pragma unroll 1
        for (i32 j = 0; j <= token; j += 16) {
            u32 m[4];
            ptx::ldmatrix(Base::matrices(weight, token, j, true), m);
            Base::add_within(y, m, of, j);
        }
        Base::store_rows(in, at, y, of, token, row, count);
    }

    // ---- The three kinds; all of them meet once a chunk ----

    // Chunk i, from row `row` on; the one behind the next comes meanwhile.
    struct Turn {
        i32 i, row, end;
        DEV bool has(i32 ahead) const { return i + ahead >= 0 && row + ahead * chunk < end; }
        DEV i32 count(i32 ahead) const { return min(chunk, end - row - ahead * chunk); }
    };
    DEV static void begin_turn(const Tensors &in, const Place &at, const Turn &t, Shared &shared)
    {
        Stage &to = shared.stage[(t.i + 2) % stages];
        if (t.has(2)) Base::bring_chunk(in, at, t.row + 2 * chunk, t.count(2), to);
    }
    DEV static void end_turn()
    {
        ptx::copy_async_wait<0>();
        __syncthreads();
    }

    DEV static void keep(const Tensors &in, const Place &at, i32 warp, Turn t, Shared &shared)
    {
        States s;
        Base::load_states(in, at, warp, s);
        Base::share_states(warp, s, shared.state[0]);
        end_turn();
#pragma unroll 1
        for (; t.row < t.end; t.i++, t.row += chunk) {
            begin_turn(in, at, t, shared);
            if (t.i >= 0) {
                Base::advance(s, warp, shared.stage[t.i % stages], shared.steps[t.i % stages]);
                if constexpr (Config::y) Base::share_states(warp, s, shared.state[(t.i + 1) % 2]);
            }
            end_turn();
        }
        Base::store_states(in, at, warp, s);
    }

    DEV static void make_rows(const Tensors &in, const Place &at, i32 warp, Turn t, Shared &shared)
    {
        end_turn();
#pragma unroll 1
        for (; t.row < t.end; t.i++, t.row += chunk) {
            begin_turn(in, at, t, shared);
            if (Config::y && t.i >= 0)
                make(in, at, shared.stage[t.i % stages], shared.steps[t.i % stages], 16 * warp,
                     shared.state[t.i % 2], shared.weight[t.i % 2], t.row, t.count(0));
            end_turn();
        }
    }

    DEV static void weigh_rows(const Tensors &in, const Place &at, i32 warp, Turn t, Shared &shared)
    {
        const bool finds = warp == weighers - 1; // this one has fewer blocks
        const float a = in.a[at.head], bias = Config::bias ? in.bias[at.head] : 0.0f;
        Step next = {};
        if (finds) {
            next = Base::load_step(in, at, t.row + chunk, t.end);
            Base::find_steps(next, a, bias, t.count(1), shared.steps[0]);
            next = Base::load_step(in, at, t.row + 2 * chunk, t.end);
        }
        end_turn();
#pragma unroll 1
        for (; t.row < t.end; t.i++, t.row += chunk) {
            begin_turn(in, at, t, shared);
            if (finds && t.has(2)) {
                const Step now = next;
                next = Base::load_step(in, at, t.row + 3 * chunk, t.end);
                Base::find_steps(now, a, bias, t.count(2), shared.steps[(t.i + 2) % stages]);
            }
            if (Config::y && t.has(1))
#pragma unroll 1
                for (i32 block = warp; block < blocks; block += weighers)
                    weigh(shared.stage[(t.i + 1) % stages], shared.steps[(t.i + 1) % stages], block,
                          shared.weight[(t.i + 1) % 2]);
            end_turn();
        }
    }

    template <class Block> DEV static void run(const Block &block, const Tensors &in)
    {
        Shared &shared = *reinterpret_cast<Shared *>(block.shared());
        const Place at = Base::place(in, block.index());
        const i32 warp = ptx::uniform(threadIdx.x / 32);
        ptx::grid_wait();
        const SequenceRows of = in.find_rows(at.batch);
        const i32 first = of.first, end = of.end;
        const Turn t = {-1, first - chunk, first < end ? end : first - chunk}; // ahead of the first chunk
        if (at.batch == 0) Base::clear(in, at, 0, first);
        if (at.batch + 1 >= in.sequences) Base::clear(in, at, end, in.rows);
        if (first < end) Base::bring_chunk(in, at, first, min(chunk, end - first), shared.stage[0]);
        if (warp < makers) make_rows(in, at, warp, t, shared);
        else if (warp < makers + weighers) weigh_rows(in, at, warp - makers, t, shared);
        else keep(in, at, warp - makers - weighers, t, shared);
        ptx::grid_launch_next();
    }
};

} // namespace coda
