// scan_chunks_sm90.cuh -- scan_chunks.cuh where a block may have more shared memory: warps of three kinds
// work on neighbouring chunks at the same time, and meet once a chunk. Two for each 32 columns hold states,
// in fp32, and make those behind chunk i. Four have 32 tokens of it and half of the columns each, and find y
// from the states ahead of it, which the others have left in bf16, and from the weights of its tokens. Four
// find these weights of chunk i + 1, c . b e^(D_i - D_j) d_j, and the sums D of chunk i + 2.
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
    static constexpr i32 makers = 4, weighers = 4, keepers = slice / 16, stages = 3;
    static_assert(32 * (makers + weighers + keepers) == Config::threads);

    struct alignas(16) Shared {
        Stage stage[stages];
        T state[2][slice][pitch], weight[2][chunk][chunk + 8];
        Steps steps[stages];
    };
    static constexpr i32 shared_bytes = sizeof(Shared);

    // Chunk i, from row `row` on; the one behind the next comes meanwhile.
    struct Turn {
        i32 i, row, end;
        DEV bool has(i32 ahead) const { return i + ahead >= 0 && row + ahead * chunk < end; }
        DEV i32 count(i32 ahead) const { return min(chunk, end - row - ahead * chunk); }
    };

    // ---- Weights ----

    // Of 16 tokens and `n` times 16 others.
    template <i32 n>
    DEV static void weigh(const Stage &of, const Steps &steps, i32 bi, i32 bj, T (&to)[chunk][chunk + 8])
    {
        float g[n][2][4] = {};
#pragma unroll
        for (i32 k = 0; k < Base::states; k += 16) {
            u32 a[4], b[n][4];
            ptx::ldmatrix(Base::matrices(of.c, 16 * bi, k, true), a);
#pragma unroll
            for (i32 j = 0; j < n; j++) ptx::ldmatrix(Base::matrices(of.b, 16 * (bj + j), k, false), b[j]);
#pragma unroll
            for (i32 j = 0; j < n; j++) {
                ptx::mma<T>(g[j][0], a, b[j][0], b[j][1]);
                ptx::mma<T>(g[j][1], a, b[j][2], b[j][3]);
            }
        }
#pragma unroll
        for (i32 p = 0; p < 4 * n; p++) {
            const i32 i = 16 * bi + lane() / 4 + 8 * (p % 2), m = p / 2 % 2;
            const i32 j = 16 * (bj + p / 4) + 8 * m + 2 * (lane() % 4);
            const float (&of_g)[4] = g[p / 4][m];
            port::store_pair(&to[i][j],
                             Base::weights(of_g[2 * (p % 2)], of_g[2 * (p % 2) + 1], steps, i, j));
        }
    }
    // A warp's share of the lower triangle.
    DEV static void weigh_all(i32 warp, const Stage &of, const Steps &steps, T (&to)[chunk][chunk + 8])
    {
        if (warp == 0) weigh<2>(of, steps, 3, 0, to);
        if (warp == 1) weigh<2>(of, steps, 3, 2, to);
        if (warp == 2) weigh<2>(of, steps, 2, 0, to), weigh<1>(of, steps, 2, 2, to);
        if (warp == 3) weigh<2>(of, steps, 1, 0, to), weigh<1>(of, steps, 0, 0, to);
    }
    // What those who make read of the upper triangle.
    DEV static void clear_weights(i32 warp, Shared &shared)
    {
        T(&to)[chunk][chunk + 8] = shared.weight[warp % 2];
        for (i32 i = lane(); i < 256; i += 32)
            to[warp / 2 * 32 + i / 16][warp / 2 * 32 + 16 + i % 16] = from_float<T>(0.0f);
    }

    // ---- y of 32 tokens and half of the columns ----

    static constexpr i32 half = slice / 2;
    typedef float Half[half / 8][4];

    // The product of a's rows, of 32 tokens from `token` on, and b.
    template <bool turned, i32 rows, i32 n, i32 p>
    DEV static void add(Half (&y)[2], const T (&a)[chunk][n], i32 token, i32 k, const T (&b)[rows][p],
                        i32 column)
    {
        u32 of_a[2][4];
#pragma unroll
        for (i32 r = 0; r < 2; r++) ptx::ldmatrix(Base::matrices(a, token + 16 * r, k, true), of_a[r]);
#pragma unroll
        for (i32 c = 0; c < half; c += 16) {
            u32 of_b[4];
            if constexpr (turned) ptx::ldmatrix_transposed(Base::matrices(b, k, column + c, true), of_b);
            else ptx::ldmatrix(Base::matrices(b, column + c, k, false), of_b);
#pragma unroll
            for (i32 r = 0; r < 2; r++) {
                ptx::mma<T>(y[r][c / 8], of_a[r], of_b[0], of_b[1]);
                ptx::mma<T>(y[r][c / 8 + 1], of_a[r], of_b[2], of_b[3]);
            }
        }
    }
    DEV static void make(const Tensors &in, const Place &at, i32 warp, const Turn &t, float skip,
                         const Shared &shared)
    {
        const Stage &of = shared.stage[t.i % stages];
        const i32 token = warp % 2 * 32, column = warp / 2 * half;
        Half y[2] = {};
#pragma unroll
        for (i32 k = 0; k < Base::states; k += 16)
            add<false>(y, of.c, token, k, shared.state[t.i % 2], column);
#pragma unroll
        for (i32 r = 0; r < 2; r++) Base::scale_rows(y[r], token + 16 * r, shared.steps[t.i % stages]);
#pragma unroll 2
        for (i32 j = 0; j < token + 32; j += 16) add<true>(y, shared.weight[t.i % 2], token, j, of.x, column);
#pragma unroll
        for (i32 r = 0; r < 2; r++)
            Base::store_rows(in, at, y[r], of, token + 16 * r, column, t.row, t.count(0), skip);
    }

    // ---- States of 32 columns ----

    // Which of 16 columns' the first ones are, as ScanFragments counts them.
    DEV static i32 first_states(i32 warp)
    {
        return warp / (slice / 32) * (slice / 16) + warp % (slice / 32) * 2;
    }
    DEV static void advance(States (&s)[2], i32 first, const Stage &of, const Steps &steps)
    {
#pragma unroll
        for (i32 n = 0; n < Base::own / 4; n++)
#pragma unroll
            for (i32 i = 0; i < 4; i++) s[n % 2][n / 2][i] *= steps.all;
#pragma unroll 1
        for (i32 k = 0; k < chunk; k += 16) {
            u32 x[2][Base::terms][4], b[Base::own / 16][4];
            Base::load_b(b, first, of, k);
#pragma unroll
            for (i32 c = 0; c < 2; c++)
                Base::weigh_x(x[c], of, k, Base::own_column(first + c), &steps.behind[k]);
#pragma unroll
            for (i32 i = Base::terms - 1; i >= 0; i--)
#pragma unroll
                for (i32 n = 0; n < Base::own / 8; n++)
#pragma unroll
                    for (i32 c = 0; c < 2; c++)
                        ptx::mma<T>(s[c][n], x[c][i], b[n / 2][n % 2 * 2], b[n / 2][n % 2 * 2 + 1]);
        }
    }

    // ---- The three kinds; all of them meet once a chunk ----

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
        const i32 first = first_states(warp);
        States s[2];
#pragma unroll
        for (i32 c = 0; c < 2; c++) {
            Base::load_states(in, at, first + c, s[c]);
            Base::share_states(first + c, s[c], shared.state[0]);
        }
        end_turn();
#pragma unroll 1
        for (; t.row < t.end; t.i++, t.row += chunk) {
            begin_turn(in, at, t, shared);
            if (t.i >= 0) {
                advance(s, first, shared.stage[t.i % stages], shared.steps[t.i % stages]);
#pragma unroll
                for (i32 c = 0; Config::y && c < 2; c++)
                    Base::share_states(first + c, s[c], shared.state[(t.i + 1) % 2]);
            }
            end_turn();
        }
#pragma unroll
        for (i32 c = 0; c < 2; c++) Base::store_states(in, at, first + c, s[c]);
    }

    DEV static void make_rows(const Tensors &in, const Place &at, i32 warp, Turn t, Shared &shared)
    {
        const float skip = Config::skip ? in.skip[at.head] : 0.0f;
        end_turn();
#pragma unroll 1
        for (; t.row < t.end; t.i++, t.row += chunk) {
            begin_turn(in, at, t, shared);
            if (Config::y && t.i >= 0) make(in, at, warp, t, skip, shared);
            end_turn();
        }
    }

    DEV static void weigh_rows(const Tensors &in, const Place &at, i32 warp, Turn t, Shared &shared)
    {
        const bool finds = warp == weighers - 1;
        const float a = in.a[at.head], bias = Config::bias ? in.bias[at.head] : 0.0f;
        Step next = {};
        clear_weights(warp, shared);
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
                weigh_all(warp, shared.stage[(t.i + 1) % stages], shared.steps[(t.i + 1) % stages],
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
