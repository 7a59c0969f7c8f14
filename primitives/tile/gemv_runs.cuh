// gemv_runs.cuh -- what a lane of a GEMV (gemv_sm90.cuh) multiplies: runs of 16 bytes of two rows of B, with
// the same of each row of A, which it holds in registers. Weights of 16 bits by multiply-adds.
#pragma once

#include "tile/fragments.cuh"

namespace coda {

// Lane l of a team's warp w has run 32 w + l of a piece of K, and every 32 team-th from it on.
template <class Config> struct GemvRuns {
    using Element = typename Config::A;
    using Weight = typename Config::B;

    static constexpr int team = Config::team, rows = Config::bm;                    // of A
    static constexpr int pieces = (int)((Config::k + Config::bk - 1) / Config::bk); // of a row of B
    static constexpr int size = sizeof(Weight), each = 16 / size;                   // elements of a run
    static constexpr int runs = (Config::bk / each + 32 * team - 1) / (32 * team);  // of a lane in a piece
    static constexpr int row_bytes = size * Config::bk, slot_bytes = 2 * row_bytes;
    static_assert(Config::k % each == 0 && Config::bk % each == 0);

    struct alignas(16) Run {
        u32 pair[4];
    };
    using Left = u32[rows][pieces][runs][each / 2]; // A's, of this lane, in pairs

    DEV static int length(int piece)
    {
        return piece + 1 < pieces ? Config::bk : (int)Config::k - piece * Config::bk;
    }
    DEV static int run_of(int i)
    {
        return (i * team + (int)threadIdx.x / 32 % team) * 32 + (int)threadIdx.x % 32;
    }

    DEV static void load(Left &x, const Element *a)
    {
#pragma unroll
        for (int i = 0; i < rows * pieces * runs; i++) {
            const int row = i / (pieces * runs), piece = i / runs % pieces, run = run_of(i % runs);
            const Element *const from = a + row * Config::a_stride_row + piece * Config::bk + each * run;
#pragma unroll
            for (int n = 0; n < each / 8; n++) {
                Run to = {};
                if (each * run < length(piece)) to = *(const Run *)(from + 8 * n);
#pragma unroll
                for (int j = 0; j < 4; j++) x[row][piece][i % runs][4 * n + j] = to.pair[j];
            }
        }
    }
};

template <class Config> struct GemvHalves : GemvRuns<Config> {
    using Runs = GemvRuns<Config>;
    using typename Runs::Element, typename Runs::Left, typename Runs::Run;
    using Runs::rows, Runs::runs, Runs::row_bytes, Runs::run_of, Runs::length;

    using Sums = float[rows][2];

    // `slot`: a piece of both rows.
    DEV static void multiply(Sums &sum, const Left &x, int piece, const u8 *slot)
    {
#pragma unroll
        for (int i = 0; i < runs; i++) {
            if (8 * run_of(i) >= length(piece)) continue;
#pragma unroll
            for (int n = 0; n < 2; n++) {
                const Run w = *(const Run *)(slot + n * row_bytes + 16 * run_of(i));
#pragma unroll
                for (int r = 0; r < rows; r++)
#pragma unroll
                    for (int j = 0; j < 4; j++) {
                        const Pair a = unpack2<Element>(x[r][piece][i][j]), b = unpack2<Element>(w.pair[j]);
                        sum[r][n] = fmaf(a.b, b.b, fmaf(a.a, b.a, sum[r][n]));
                    }
            }
        }
    }
};

} // namespace coda
