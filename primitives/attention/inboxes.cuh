// inboxes.cuh -- where the blocks of a cluster bring together what each has summed over its part of an item's
// keys: a rank merges a slice of the columns, and the others send it theirs.
//
// They send by st.async, and the mbarrier of an inbox counts the bytes. Before others could fetch the sums,
// each warp would have to release them to the cluster, which on Hopper is a fence at the scope of the GPU: it
// takes microseconds where the memory system is full of loads. Nor is there such a fence on the way back,
// since what an inbox held has been read when its merger arrives.
//
// Items take turns; an inbox is free when all ranks have read theirs.
#pragma once
#include "attention/merge.cuh"
#include "ptx/barrier.cuh"
#include "ptx/cluster.cuh"
#include "ptx/control.cuh"

namespace coda {

template <class Config, i32 rows, i32 columns> struct Inboxes {
    static constexpr i32 cluster = Config::cluster, slice = columns / cluster; // columns that a rank merges
    static constexpr i32 count = rows > 8 ? 1 : 2;                             // items that may be under way
    static_assert(columns % (4 * cluster) == 0 && columns >= 4 * cluster);

    struct Sums { // of each block
        alignas(16) float out[cluster][rows][slice];
        Peak peak[cluster][rows];
    } sums[count];
    u64 full[count], read[count];

    DEV static u32 address(const void *p) { return ptx::shared_address(p); }
    DEV static u32 there(const void *p, u32 rank) { return ptx::cluster_address(address(p), rank); }

    // By a thread of each block.
    DEV void init()
    {
        for (i32 i = 0; i < count; i++) {
            ptx::mbarrier_init(address(&full[i]), 1);
            ptx::mbarrier_init(address(&read[i]), cluster);
        }
    }
    // Four columns of a row go to the rank that merges them, and the row's peak to all. Who has nothing to
    // send does not wait: the mbarrier might be two phases ahead when it looks.
    DEV void send(const Partial<Config> &all, i32 row, i32 column, u32 turn)
    {
        const u32 at = turn % count, rank = ptx::cluster_rank(), owner = (u32)column / slice;
        ptx::mbarrier_wait(address(&read[at]), turn / count & 1 ^ 1);
        ptx::cluster_send(there(&sums[at].out[rank][row][(u32)column % slice], owner), all.out,
                          there(&full[at], owner));
        const u32 other = (u32)column / 4;
        if (other >= cluster) return;
        ptx::cluster_send(there(&sums[at].peak[rank][row], other), {all.max, all.sum, 0.0f, 0.0f},
                          there(&full[at], other));
    }

    // ---- The merger, a warp ----

    DEV void receive(u32 turn, i32 lane)
    {
        const u32 bar = address(&full[turn % count]);
        if (lane == 0) ptx::mbarrier_arrive_expect(bar, sizeof(Sums));
        ptx::cluster_mbarrier_wait(bar, turn / count & 1);
    }
    // Four columns of this rank's slice.
    DEV float merge(const Score<Config> &as, i32 row, i32 column, u32 turn, float (&y)[4]) const
    {
        const Sums &from = sums[turn % count];
        Partial<Config> part[cluster];
#pragma unroll
        for (i32 r = 0; r < cluster; r++) {
            part[r].max = from.peak[r][row].max, part[r].sum = from.peak[r][row].sum;
            ptx::shared_load(part[r].out, address(&from.out[r][row][column]));
        }
        return merge_blocks(as, part, y);
    }
    DEV void release(u32 turn, i32 lane)
    {
        __syncwarp();
        if (lane < cluster) ptx::cluster_mbarrier_arrive(there(&read[turn % count], lane));
    }
};

} // namespace coda
