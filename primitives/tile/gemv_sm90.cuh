// gemv_sm90.cuh -- C = A B^T for a row or two of A: B streams through shared memory at memory's pace.
//
//     producer    one thread: copies pairs of B's rows into a ring, in pieces of K
//     preparer    a warp: the epilogue's values of rows and columns, while the others multiply
//     consumers   teams of warps that share each row of B: lane l of a team's warp w multiplies runs of 8 k,
//                 from run 32 w + l on, with A in registers, and the warp adds up. There is one team, or
//                 several where K is so short that some warps had nothing to multiply: each has other rows.
//                 Of rows that are one piece the only team takes the two pairs of a quad at one time, and of
//                 weights of 8 bits all teams do: there what it waits for between slots, and for sums of
//                 lanes, takes as long as memory does
//
// What a lane multiplies, and how, is in gemv_runs.cuh, for weights of 8 bits in gemv_bytes.cuh.
//
// Each block has a share of the columns (see stream.cuh). At its end a thread adds the warps' sums of a quad,
// in their order, and does the quad's epilogue; of segments the cluster makes the statistics ahead of that.
#pragma once

#include "tile/gemv_bytes.cuh"
#include "tile/gemv_runs.cuh"
#include "tile/parts.cuh"
#include "tile/resources.cuh"
#include "tile/segments.cuh"
#include "tile/stream.cuh"

namespace coda {

template <class Config, bool narrow> struct GemvOf : GemvHalves<Config> {
};
template <class Config> struct GemvOf<Config, true> : GemvBytes<Config> {
};

template <class Config, class Epilogue, class Block> struct GemvSm90 {
    using Weight = typename Config::B;
    using Columns = typename Config::Columns;
    using Args = typename Config::Args;
    using Quads = coda::Quads<Config, Epilogue, Block, 1, Config::cluster, Config::folds_segments>;
    using Segments = coda::Segments<Quads, Epilogue, Config::cluster>;
    using Spot = typename Quads::Spot;
    using State = typename Epilogue::State;

    static constexpr int warps = 4 * Config::groups, threads = 32 * warps; // of consumers
    static constexpr bool narrow = sizeof(Weight) == 1;
    using Runs = GemvOf<Config, narrow>;
    using Left = typename Runs::Left;
    using Sums = typename Runs::Sums;
    static constexpr int rows = Quads::most_rows; // as many as there are
    static constexpr int pieces = Runs::pieces, runs = Runs::runs;
    static constexpr int team = Config::team, teams = warps / team;
    static_assert(warps % team == 0 && (teams == 1 || (pieces == 1 && runs == 1)));

    static constexpr int pairs = Config::pairs; // of rows that a slot has: one, or those of a quad
    static_assert(pairs == 1 || narrow);

    using Ring = StreamRing<Config::stages, pairs * Runs::slot_bytes, Config::window>;
    struct Shared {
        Ring ring;
        float sums[team][rows][Quads::most_quads][4];
        typename Quads::Values values;
        State state[warps];
        typename Segments::Shared segments;
    };
    static_assert(shared_fits<Shared>(Config::shared_bytes));

    const Args &args;
    Shared &s;
    const Block &block;

    // Consumers, in whole warps.
    DEV static void meet()
    {
        __syncwarp();
        ptx::named_barrier(barrier_streamers, threads);
    }

    // ---- Producer ----

    DEV const Weight *row_at(int row) const
    {
        return rows_of_b<Config>(args, row) + row * Config::b_stride_row;
    }
    DEV void produce() const
    {
        auto at = Ring::producer();
        if (!Config::early) ptx::grid_wait();
#pragma unroll 1
        for (int i = 4 * Quads::first(block.index()); i < 4 * Quads::first(block.index() + 1); i += 2 * pairs)
            for (int piece = 0; piece < pieces; piece++, at.next()) {
                const u32 bytes = Runs::size * Runs::length(piece),
                          bar = s.ring.expect(at, 2 * pairs * bytes);
                const u32 to = ptx::shared_address(s.ring.data[at.slot]);
#pragma unroll
                for (int n = 0; n < 2 * pairs; n++) {
                    const int row = Spot::of(i / 4).at((i + n) / 2 % 2, 0) + n % 2 * Columns::step;
                    const Weight *const from = row_at(Quads::row_of(row)) + piece * Config::bk;
                    ptx::bulk_load_once(to + n * Runs::row_bytes, from, bytes, bar);
                }
            }
    }

    // ---- Consumers ----

    // A warp's sums of two columns: lane 0 ends with the first, lane 16 with the second.
    DEV static float add_up(const float (&sum)[2])
    {
        const bool upper = threadIdx.x & 16;
        float x = (upper ? sum[1] : sum[0]) + __shfl_xor_sync(~0u, upper ? sum[0] : sum[1], 16);
#pragma unroll
        for (int i = 8; i; i /= 2) x += __shfl_xor_sync(~0u, x, i);
        return x;
    }

    // The same of four, each with the same bits: lanes 0, 16, 8 and 24 end with them.
    DEV static float add_up(const float (&first)[2], const float (&second)[2])
    {
        const bool upper = threadIdx.x & 16, right = threadIdx.x & 8;
        const float x = (upper ? first[1] : first[0]) + __shfl_xor_sync(~0u, upper ? first[0] : first[1], 16);
        const float y =
            (upper ? second[1] : second[0]) + __shfl_xor_sync(~0u, upper ? second[0] : second[1], 16);
        float all = (right ? y : x) + __shfl_xor_sync(~0u, right ? x : y, 8);
#pragma unroll
        for (int i = 4; i; i /= 2) all += __shfl_xor_sync(~0u, all, i);
        return all;
    }

    DEV void multiply_quads(const Left &x) const
    {
        const int quads = Quads{args, s.values, block}.count();
        const u32 lane = threadIdx.x % 32, column = lane / 8 % 2 * 2 + lane / 16;
        auto at = Ring::consumer();
#pragma unroll 1
        for (int i = 0; i < quads; i++) {
            auto next = at;
            next.next();
            Sums sum[2] = {};
            s.ring.wait(at);
            s.ring.wait(next);
            Runs::multiply(sum[0], x, 0, s.ring.data[at.slot]);
            Runs::multiply(sum[1], x, 0, s.ring.data[next.slot]);
            s.ring.release(at);
            s.ring.release(next);
#pragma unroll
            for (int r = 0; r < rows; r++) {
                const float all = add_up(sum[0][r], sum[1][r]);
                if (lane % 8 == 0) s.sums[threadIdx.x / 32][r][i][column] = all;
            }
            at = next;
            at.next();
        }
    }
    // The same of weights of 8 bits, but the second pair is waited for when the first one's products are on
    // their way. Teams take quads in turns.
    DEV void multiply_bytes(const Left &x, float back) const
    {
        const int quads = Quads{args, s.values, block}.count(), warp = threadIdx.x / 32;
        const u32 lane = threadIdx.x % 32, column = lane / 8 % 2 * 2 + lane / 16;
        auto at = Ring::consumer();
#pragma unroll 1
        for (int i = warp / team; i < quads; i += teams) {
            if constexpr (teams > 1) at = Ring::Cursor::after((u32)(2 / pairs * i));
            Sums sum[2] = {};
#pragma unroll
            for (int n = 0; n < 2 / pairs * pieces; n++, at.next()) {
                s.ring.wait(at);
#pragma unroll
                for (int m = 0; m < pairs; m++)
                    Runs::multiply(sum[m + n / pieces], x, n % pieces,
                                   s.ring.data[at.slot] + m * Runs::slot_bytes);
                s.ring.release(at);
            }
            float both[2][2];
#pragma unroll
            for (int n = 0; n < 2; n++) Runs::pick(both[n], sum[n][0], back);
            const float all = add_up(both[0], both[1]);
            if (lane % 8 == 0) s.sums[warp % team][0][i][column] = all;
        }
    }
    DEV void multiply_all(const Left &x) const
    {
        const int pairs = 2 * Quads{args, s.values, block}.count(), warp = threadIdx.x / 32;
        auto at = Ring::consumer();
#pragma unroll 1
        for (int i = warp / team; i < pairs; i += teams) {
            if constexpr (teams > 1) at = Ring::Cursor::after((u32)i);
            Sums sum = {};
#pragma unroll
            for (int piece = 0; piece < pieces; piece++, at.next()) {
                s.ring.wait(at);
                Runs::multiply(sum, x, piece, s.ring.data[at.slot]);
                s.ring.release(at);
            }
#pragma unroll
            for (int r = 0; r < rows; r++) {
                const float all = add_up(sum[r]);
                if (threadIdx.x % 16 == 0)
                    s.sums[warp % team][r][i / 2][i % 2 * 2 + threadIdx.x / 16 % 2] = all;
            }
        }
    }

    // ---- Epilogue ----

    DEV void add_warps(int row, int quad, float (&sum)[2][2]) const
    {
#pragma unroll
        for (int i = 0; i < 4; i++) {
            float &all = sum[i / 2][i % 2] = 0;
#pragma unroll
            for (int w = 0; w < team; w++) all += s.sums[w][row][quad][i];
        }
    }

    // The states of a row, one of each warp that has quads.
    DEV void finish(int row, State &state) const
    {
        if constexpr (Quads::most_quads <= 32) {
            if (threadIdx.x == 0) Epilogue::save(args, row, block.index(), state);
            return;
        }
        if (threadIdx.x % 32 == 0) s.state[threadIdx.x / 32] = state;
        meet();
        if (threadIdx.x == 0) {
            for (int w = 1; w < warps; w++) Epilogue::merge(state, s.state[w]);
            Epilogue::save(args, row, block.index(), state);
        }
        meet();
    }

    DEV void drain() const
    {
        const Quads quads = {args, s.values, block};
        const Segments segments = {quads, s.segments};
        const auto sums = [&](int row, int quad, float(&x)[2][2]) { add_warps(row, quad, x); };
        segments.finish_all(threadIdx.x, threads, sums, meet);
#pragma unroll 1
        for (int row = 0; row < rows; row++) {
            State state = quads.template drain<32>(row, threadIdx.x, threads, sums, segments);
            if constexpr (Quads::has_state) finish(row, state);
        }
        Segments::leave();
    }

    DEV void prepare() const
    {
        ptx::grid_wait();
        Quads{args, s.values, block}.prepare();
        s.ring.tell_prepared();
    }

    DEV void run() const
    {
        const int warp = ptx::uniform(threadIdx.x / 32);
        s.ring.init(team);
        if (Config::early) ptx::grid_launch_next();
        if (warp >= warps) {
            if (warp == warps && ptx::elect_one()) produce();
            if (warp == warps + 1) prepare();
            Segments::attend();
            return;
        }
        ptx::grid_wait();
        Left x;
        Runs::load(x, args.a);
        if constexpr (narrow) multiply_bytes(x, Runs::convert(x));
        else if constexpr (teams == 1 && pieces == 1) multiply_quads(x);
        else multiply_all(x);
        meet();
        s.ring.wait_prepared();
        drain();
    }
};

template <class Config, class Epilogue, class Block>
DEV void gemv_sm90(const typename Config::Args &args, const Block &block)
{
    using Gemv = GemvSm90<Config, Epilogue, Block>;
    Gemv{args, *(typename Gemv::Shared *)block.shared(), block}.run();
}

} // namespace coda
