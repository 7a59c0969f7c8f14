// mixed_transposed.cuh -- an epilogue of gemm_sm90_mixed.cuh that is applied where the sums lie: a thread has
// two columns of the output and many rows. It knows columns alone, and stores one tensor of 16 bits, which
// stmatrix turns round on its way to the memory that TMA stores from.
#pragma once

#include "ptx/barrier.cuh"
#include "ptx/control.cuh"
#include "ptx/matrix.cuh"
#include "ptx/tma.cuh"
#include "tile/epilogue.cuh"
#include "tile/resources.cuh"

namespace coda {

template <class Config, class Epilogue> struct TransposedDrain {
    using Drain = coda::Drain<Config, Epilogue>;
    using Layout = EpilogueLayout<Config, Epilogue>;
    using Staging = typename Drain::Staging;
    using Slots = typename Drain::Slots;
    static constexpr int ring = Layout::ring, chunks = Layout::chunks, pitch = 2 * Config::unit; // bytes
    static constexpr int octets = Config::unit / 8; // of columns in a unit
    static_assert(Epilogue::stores == 1 && Epilogue::loads == 0 && Epilogue::ranges == 1 &&
                  !Epilogue::segment);
    static_assert(Epilogue::Staged::count == 1 && Epilogue::Staged::bytes == 2 && !Layout::has_row);
    static_assert(!Layout::has_half && !Layout::has_state && !Layout::folds_columns);
    static_assert(__is_empty(typename Epilogue::Cell) && Drain::samples == 1 && Config::Columns::lanes == 1);
    static_assert(Layout::buffers == 1 && chunks <= ring);

    const Drain &drain;

    // What becomes of sums of one column: two neighbouring rows of each of two octets of them.
    DEV void finish(const float (&sums)[2][2], int column, u32 &first, u32 &second) const
    {
        Line in[1], out[1];
        typename Epilogue::State state[Slots::chains];
        typename Drain::Cells cells;
        Slots::template apply<0>(
            drain.args, sums, Place{}, typename Epilogue::Row{},
            [&](int, int) { return drain.values.col[0][column]; },
            [&](int) { return drain.values.half[0][0]; }, in, out, state, cells);
        Epilogue::Staged::each([&](auto move, int, int) {
            u32 w[2][1];
            decltype(move)::pack(w[0], out, 0), decltype(move)::pack(w[1], out, 1);
            first = w[0][0], second = w[1][0];
        });
    }

    // Before a block's units are overwritten TMA has read them, whichever warp it was that stored.
    DEV void open(int block, int lane) const
    {
        if (block > 0 && (block + 1) * chunks <= ring) return;
        if (lane == 0) block ? ptx::tma_store_wait_read<ring - chunks>() : ptx::tma_store_wait_read<0>();
        drain.meet();
    }

    // n sums of a thread: as wgmma has them, of 16 rows of B, the columns, and all rows of A.
    template <int n> DEV void store(const float (&sum)[n], const Tile &t) const
    {
        const int lane = threadIdx.x % 32, warp = ptx::uniform(threadIdx.x / 32 % 4);
        const int octet = 2 * warp + lane / 8 % 2, row = lane % 8;
        const Staging staging = drain.staging();
#pragma unroll
        for (int b = 0; b < Layout::blocks && 32 * b < n; b++) {
            open(b, lane);
            const u32 to = staging.stored((b * chunks + octet / octets) % ring, 0, 0) +
                           (row + lane / 16 * 8) * pitch + Staging::swizzled(octet % octets, 2, row);
#pragma unroll
            for (int i = 0; i < 8; i += 2) {
                if (32 * b + 4 * i >= n) continue;
                u32 m[4];
#pragma unroll
                for (int h = 0; h < 2; h++) {
                    const float *at = sum + 32 * b + 4 * i + 2 * h;
                    finish({{at[0], at[1]}, {at[4], at[5]}}, 16 * warp + lane / 4 + 8 * h, m[h], m[2 + h]);
                }
                ptx::stmatrix_transposed(to + i * 8 * pitch, m[0], m[1], m[2], m[3]);
            }
            ptx::fence_async_shared();
            drain.meet();
#pragma unroll
            for (int c = 0; c < chunks; c++)
                staging.template close_unit<0>(t, c, b, (b * chunks + c) % ring, 0);
        }
    }
};

} // namespace coda
