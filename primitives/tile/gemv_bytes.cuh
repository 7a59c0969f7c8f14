// gemv_bytes.cuh -- a lane's runs of weights of 8 bits in a GEMV (gemv_sm90.cuh), by mma.sync.
//
// A lane's 16 k are one of eight segments: rows of B's operand are segments of two rows of B, its columns the
// same segments of A. What a segment has of another one's A is left out, so that a lane multiplies what it
// does by multiply-adds, in a fifth of the instructions.
#pragma once

#include "ptx/matrix.cuh"
#include "tile/gemv_runs.cuh"

namespace coda {

template <class Config> struct GemvBytes : GemvRuns<Config> {
    using Runs = GemvRuns<Config>;
    using typename Runs::Element, typename Runs::Weight, typename Runs::Left, typename Runs::Run;
    using Runs::pieces, Runs::runs, Runs::each, Runs::row_bytes, Runs::run_of, Runs::length;
    static_assert(Runs::rows == 1 && Runs::size == 1);

    using Sums = float[1][4]; // a product's

    // What A is multiplied by, so that it is f16, and what brings its sums back: see HalfRun. All that a warp
    // has of a row is one run.
    DEV static float convert(Left &left)
    {
        if constexpr (!is_bf16_of<Element>) return 1;
        constexpr int pairs = pieces * runs * each / 2;
        u32(&x)[pairs] = (u32(&)[pairs])left;
        u32 most = 0; // without a sign bits are in the order of the numbers
#pragma unroll
        for (int i = 0; i < pairs; i++) most = ptx::larger_pairs(most, x[i] & 0x7fff7fff);
        most = ptx::larger_pairs(most, most >> 16 | most << 16);
#pragma unroll
        for (int i = 1; i < 32; i *= 2) most = ptx::larger_pairs(most, __shfl_xor_sync(~0u, most, i));
        const int shift = min(127 + 14 - (int)(most >> 7 & 255), 120);
#pragma unroll
        for (int i = 0; i < pairs; i++) x[i] = half_pair(x[i], shift);
        return bits_float((u32)(127 - shift) << 23);
    }

    // `slot`: a piece of both rows.
    DEV static void multiply(Sums &sum, const Left &x, int piece, const u8 *slot)
    {
#pragma unroll
        for (int i = 0; i < runs; i++) multiply_run(sum[0], x[0][piece][i], run_of(i), length(piece), slot);
    }
    DEV static void multiply_run(float (&sum)[4], const u32 (&x)[each / 2], int run, int length,
                                 const u8 *slot)
    {
        if (each * (run - (int)threadIdx.x % 32) >= length) return; // the whole warp's
        Run w[2] = {};
        if (each * run < length)
#pragma unroll
            for (int n = 0; n < 2; n++) w[n] = *(const Run *)(slot + n * row_bytes + 16 * run);
#pragma unroll
        for (int j = 0; j < 4; j++) {
            u32 u[2], l[2];
            Widen<Weight, f16>::pairs(w[0].pair[j], u);
            Widen<Weight, f16>::pairs(w[1].pair[j], l);
            const u32 both[4] = {u[0], l[0], u[1], l[1]};
            ptx::mma<f16>(sum, both, x[2 * j], x[2 * j + 1]);
        }
    }
    // Of two rows what a lane has of its own segment.
    DEV static void pick(float (&to)[2], const float (&sum)[4], float back)
    {
        const int lane = threadIdx.x % 32, segment = lane / 4;
        const bool own = lane % 4 == segment / 2;
#pragma unroll
        for (int n = 0; n < 2; n++) to[n] = own ? back * (segment % 2 ? sum[2 * n + 1] : sum[2 * n]) : 0;
    }
};

} // namespace coda
