// mixed_turned.cuh -- sums of gemm_sm90_mixed.cuh, which lie transposed, become the fragment that an epilogue
// drains, through shared memory.
#pragma once

#include "ptx/barrier.cuh"
#include "ptx/tma.cuh"
#include "tile/resources.cuh"

namespace coda {

template <class Gemm> struct MixedTurned {
    using Sums = typename Gemm::Sums;
    using Fragment = typename Gemm::Fragment;
    static constexpr bool in_stage = Gemm::turns_in_stage;
    static constexpr int columns = Gemm::turn_columns, pitch = Gemm::turn_pitch,
                         blocks = Gemm::Layout::blocks, n = Gemm::n;

    const Gemm &gemm;
    const int group; // the consumer

    // The column of the tile that row `i` of the consumer's 64 is.
    DEV static int column_of(int i) { return Gemm::by_turns ? i % 2 * 32 + i / 2 : i; }

    // From rows of B by rows of A to the fragment of the latter by the former: 64 rows of A and columns
    // at a time. Lanes that write, or read, at one time are in other banks.
    DEV float *turned() const
    {
        return in_stage ? (float *)gemm.s.stage[group] : &gemm.s.turned[in_stage ? 0 : group][0][0];
    }
    // By how much the columns of a row are exchanged; rows that are 8 apart have the same.
    DEV static int exchanged(int row) { return in_stage ? (row / 2 % 4 ^ row % 2 * 2) * 8 : 0; }
    DEV void turn(const Sums &sum, Fragment &out) const
    {
        constexpr int turns = 64 / columns, octet = 8 * pitch;
        const int lane = threadIdx.x % 32, warp = threadIdx.x / 32 % 4;
        float *all = turned();
        if (in_stage && lane == 0) ptx::tma_store_wait_read<0>();
#pragma unroll
        for (int pass = 0; pass < turns * blocks; pass++) {
            const int b = pass / turns, first = pass % turns * columns;
            ptx::named_barrier(barrier_group + group, 128); // what was there has been read
#pragma unroll
            for (int h = 0; h < 2; h++) {
                const int column = column_of(16 * warp + lane / 4 + 8 * h) - first;
                if (turns > 1 && (column < 0 || column >= columns)) continue;
#pragma unroll
                for (int e = 0; e < 2; e++) {
                    const int row = lane % 4 * 2 + e;
                    float *to = all + row * pitch + (column ^ exchanged(row));
#pragma unroll
                    for (int i = 0; i < 8; i++)
                        if (32 * b + 4 * i < n / 2) to[i * octet] = sum[32 * b + 4 * i + 2 * h + e];
                }
            }
            ptx::named_barrier(barrier_group + group, 128);
            const float *from = all + (16 * warp + lane / 4) * pitch + lane % 4 * 2;
#pragma unroll
            for (int i = 0; i < columns / 2; i += 2) {
                const float *at = from + i / 2 % 2 * octet + (i / 4 * 8 ^ exchanged(lane / 4));
                out[b][first / 2 + i] = at[0], out[b][first / 2 + i + 1] = at[1];
            }
        }
        if (in_stage) ptx::named_barrier(barrier_group + group, 128);
    }
};

} // namespace coda
