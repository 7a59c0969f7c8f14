// split.cuh -- the blocks of a cluster multiply a part of K each: the sum of their sums.
//
// Share, a Config, says how wide the share of a tile is that a block drains. If as wide as the tile, that is
// rank 0: the others leave their sums in shared memory, and it reads them there. Else rank r owns share r:
// every block sends what others own of its sums into their shared memory. All is added in the order of the
// ranks, whoever adds.
#pragma once

#include "ptx/cluster.cuh"
#include "tile/raster.cuh"

namespace coda {

template <class Config, class Share, int blocks> struct SplitSums {
    using Accumulators = float[blocks][Config::bn / 2];
    using Sums = float[blocks][Share::bn / 2];
    static constexpr int shares = Config::bn / Share::bn;
    static constexpr int octets = Share::bn / 8;                // of columns, in a share
    static constexpr int octet_bytes = 128 * 4 * sizeof(float); // 4 sums of each of 128 threads
    static constexpr bool scattered = shares > 1;
    static constexpr int share_bytes = blocks * octets * octet_bytes; // of a warpgroup, of one block
    static constexpr int group_bytes = scattered ? (Config::splits - 1) * share_bytes : shares * share_bytes;
    static constexpr int bytes = Config::splits == 1 ? 0 : Config::groups * group_bytes;
    static_assert(Config::bn % Share::bn == 0 && (shares == 1 || shares == Config::splits));
    static_assert((shares & (shares - 1)) == 0);

    u32 memory; // shared address, of this warpgroup
    int rank;

    // A share of a gated tile has columns of both halves.
    DEV static constexpr int octet_in_tile(int share, int octet)
    {
        constexpr int half = octets / 2;
        if (Config::Columns::gated) return octet / half * (Config::bn / 16) + share * half + octet % half;
        return share * octets + octet;
    }
    // Four of a thread's sums are adjacent: those of an octet. So are those of neighbouring threads.
    DEV u32 first() const { return memory + threadIdx.x % 128 * 16; }

    // The share as a tile of its own. The last tile's may lie past the end.
    DEV static Tile share_of(const Tile &t, int rank)
    {
        if constexpr (shares == 1) return t;
        const int n = t.n * shares + rank;
        return {t.batch, t.m, n, n * Share::bn, Share::bn};
    }
    DEV static bool owns(const Tile &t, int rank)
    {
        return Config::splits == 1 ||
               (rank < shares && (Config::n % Config::bn == 0 || share_of(t, rank).first < Config::n));
    }

    // ---- All to rank 0 ----

    // To memory that no one reads or multiplies any more.
    DEV void publish(const Accumulators &acc) const
    {
        if (rank == 0) return;
#pragma unroll
        for (int i = 0; i < blocks * octets; i++) {
            const float *x = acc[i / octets] + i % octets * 4;
            ptx::shared_store(first() + i * octet_bytes, {x[0], x[1], x[2], x[3]});
        }
    }
    // All have published theirs. A rank at a time: registers do not hold more.
    DEV void gather(const Accumulators &acc, Sums &sums) const
    {
#pragma unroll
        for (int i = 0; i < blocks * 4 * octets; i++)
            sums[i / (4 * octets)][i % (4 * octets)] = acc[i / (4 * octets)][i % (4 * octets)];
        for (int r = 1; r < Config::splits; r++)
#pragma unroll
            for (int i = 0; i < blocks * octets; i++) {
                float x[4], *sum = sums[i / octets] + i % octets * 4;
                ptx::cluster_load(x, ptx::cluster_address(first() + i * octet_bytes, r));
#pragma unroll
                for (int j = 0; j < 4; j++) sum[j] += x[j];
            }
    }

    // ---- To each its share ----

    // To memory of others in which no one reads or multiplies any more. What rank r sends to rank s is number
    // (r ^ s) - 1 there. `bar` is the mbarrier that counts it.
    DEV void send(const Accumulators &acc, const Tile &t, u32 bar) const
    {
#pragma unroll
        for (int s = 0; s < shares; s++)
            if (rank != s && owns(t, s)) send_share(acc, s, bar);
    }
    DEV void send_share(const Accumulators &acc, int share, u32 bar) const
    {
        const u32 to = ptx::cluster_address(first() + ((rank ^ share) - 1) * share_bytes, share);
        const u32 counter = ptx::cluster_address(bar, share);
#pragma unroll
        for (int i = 0; i < blocks * octets; i++) {
            const float *x = acc[i / octets] + octet_in_tile(share, i % octets) * 4;
            ptx::cluster_send(to + i * octet_bytes, {x[0], x[1], x[2], x[3]}, counter);
        }
    }

    // All of it has come. Each rank has code of its own, where its place in the order is a constant.
    template <int share = 0> DEV void add_up(const Accumulators &acc, Sums &sums) const
    {
        if (rank == share) add_up_share<share>(acc, sums);
        else if constexpr (share + 1 < shares) add_up<share + 1>(acc, sums);
    }
    template <int share> DEV void add_up_share(const Accumulators &acc, Sums &sums) const
    {
#pragma unroll
        for (int i = 0; i < blocks * octets; i++) {
            float x[Config::splits][4];
#pragma unroll
            for (int d = 1; d < Config::splits; d++)
                ptx::shared_load(x[share ^ d], first() + (d - 1) * share_bytes + i * octet_bytes);
#pragma unroll
            for (int j = 0; j < 4; j++) {
                x[share][j] = acc[i / octets][4 * octet_in_tile(share, i % octets) + j];
                float &sum = sums[i / octets][i % octets * 4 + j] = x[0][j];
#pragma unroll
                for (int r = 1; r < Config::splits; r++) sum += x[r][j];
            }
        }
    }
};

} // namespace coda
