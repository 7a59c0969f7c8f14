// split.cuh -- the blocks of a cluster multiply a part of K each: the sum of their sums.
//
// The columns of their tile lie in shares, and rank r of the cluster owns share r. Every block leaves in
// shared memory what others own of its sums, and adds to its own share what they left of it, in the order
// of the ranks, whoever adds. A Config S says how wide a share is; if as wide as the tile, it is rank 0's.
#pragma once

#include "ptx/cluster.cuh"
#include "tile/raster.cuh"

namespace coda {

template <class C, class S, int blocks> struct SplitSums {
    using Accumulators = float[blocks][C::bn / 2];
    using Sums = float[blocks][S::bn / 2];
    static constexpr int shares = C::bn / S::bn;
    static constexpr int octets = S::bn / 8;                        // of columns, in a share
    static constexpr int group_bytes = blocks * (C::bn / 8) * 2048; // of a warpgroup
    static constexpr int bytes = C::splits == 1 ? 0 : C::groups * group_bytes;
    static_assert(C::bn % S::bn == 0 && (shares == 1 || shares == C::splits));
    static_assert((shares & (shares - 1)) == 0);

    u32 memory; // shared address, of this warpgroup
    int rank;

    // Of a gated tile a share has columns of both halves.
    DEV static constexpr int octet_in_tile(int share, int octet)
    {
        constexpr int half = octets / 2;
        if (C::Columns::gated) return octet / half * (C::bn / 16) + share * half + octet % half;
        return share * octets + octet;
    }
    // Four of a thread's sums are adjacent: those of an octet. So are those of neighbouring threads.
    DEV static constexpr int distance(int block, int octet) { return (block * (C::bn / 8) + octet) * 2048; }
    DEV u32 first() const { return memory + threadIdx.x % 128 * 16; }

    // The share as a tile of its own. The last tile's may lie past the end.
    DEV static Tile share_of(const Tile &t, int rank) { return {t.batch, t.m, t.n * shares + rank}; }
    DEV static bool owns(const Tile &t, int rank)
    {
        return C::splits == 1 || (rank < shares && (C::n % C::bn == 0 || share_of(t, rank).n * S::bn < C::n));
    }

    // To memory that no one reads or multiplies any more.
    DEV void leave(const Accumulators &acc) const
    {
#pragma unroll
        for (int s = 0; s < shares; s++)
            if (rank != s) leave_share(acc, s);
    }
    DEV void leave_share(const Accumulators &acc, int share) const
    {
#pragma unroll
        for (int i = 0; i < blocks * octets; i++) {
            const int octet = octet_in_tile(share, i % octets);
            const float *x = acc[i / octets] + octet * 4;
            ptx::shared_store(first() + distance(i / octets, octet), {x[0], x[1], x[2], x[3]});
        }
    }

    // All have left theirs. Each rank has code of its own, where its place in the order is a constant.
    template <int share = 0> DEV void gather(const Accumulators &acc, Sums &sums) const
    {
        if (rank != share) {
            if constexpr (share + 1 < shares) gather<share + 1>(acc, sums);
        } else if constexpr (shares > 1) gather_share<share>(acc, sums);
        else gather_all(acc, sums);
    }
    // All that is left of an octet is read before it is added; at any time each rank reads from another.
    template <int share> DEV void gather_share(const Accumulators &acc, Sums &sums) const
    {
        u32 from[C::splits];
#pragma unroll
        for (int r = 0; r < C::splits; r++) from[r] = ptx::cluster_address(first(), r);
#pragma unroll
        for (int i = 0; i < blocks * octets; i++) {
            const int block = i / octets, octet = octet_in_tile(share, i % octets);
            float x[C::splits][4];
#pragma unroll
            for (int d = 1; d < C::splits; d++)
                ptx::cluster_load(x[share ^ d], from[share ^ d] + distance(block, octet));
#pragma unroll
            for (int j = 0; j < 4; j++) {
                x[share][j] = acc[block][4 * octet + j];
                float &sum = sums[block][i % octets * 4 + j] = x[0][j];
#pragma unroll
                for (int r = 1; r < C::splits; r++) sum += x[r][j];
            }
        }
    }
    // A rank at a time: registers do not hold more.
    DEV void gather_all(const Accumulators &acc, Sums &sums) const
    {
#pragma unroll
        for (int i = 0; i < blocks * 4 * octets; i++)
            sums[i / (4 * octets)][i % (4 * octets)] = acc[i / (4 * octets)][i % (4 * octets)];
        for (int r = 1; r < C::splits; r++)
#pragma unroll
            for (int i = 0; i < blocks * octets; i++) {
                float x[4], *sum = sums[i / octets] + i % octets * 4;
                ptx::cluster_load(x, ptx::cluster_address(first() + distance(i / octets, i % octets), r));
#pragma unroll
                for (int j = 0; j < 4; j++) sum[j] += x[j];
            }
    }
};

} // namespace coda
