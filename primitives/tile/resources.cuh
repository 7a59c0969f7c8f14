// resources.cuh -- what the warps of a block share out among themselves, in one place for all kernels: named
// barriers, registers, and the units in which shared memory is counted. README.md has them as tables.
//
// It stands on nothing.
#pragma once

#include "types.cuh"

namespace coda {

// Ids of bar.sync. A kernel may use one id under two names as long as no thread waits for both at a time.
enum BarrierId {
    barrier_block = 0,     // all threads; __syncthreads has this id, too
    barrier_group = 1,     // + group: the 128 threads of one consumer warpgroup
    barrier_turn = 4,      // + group: whose turn it is to issue products, and who was before
    barrier_scaled = 7,    // + group: whose turn it is to multiply sums that are scaled in place
    barrier_announced = 10, // + group: what other blocks left of a tile is there
    barrier_streamers = 1, // all consumers of streams and attention_split, which have no barrier_group
    barrier_consumers = 15 // all consumers: the last id, out of the way of those of their warpgroups
};

// Registers of a thread, as setmaxnreg sets them for a warpgroup: multiples of 8, from 24 on. What a producer
// gives away its consumers take, who hold the accumulators: so both numbers belong together, and all
// warpgroups of the blocks that share an SM must fit into its 65536 registers.
template <int of_producer, int of_consumer, int consumers, int blocks = 1> struct RegisterBudget {
    static constexpr int producer = of_producer, consumer = of_consumer;
    static_assert(producer % 8 == 0 && producer >= 24 && consumer % 8 == 0 && consumer < 256);
    static_assert(128 * blocks * (producer + consumers * consumer) <= 65536);
};

// A thread that only issues TMA loads lives with 24, the fewest. Two consumers take nearly all of the rest,
// as a thread may hold 128 sums; three share it, and with one consumer two blocks share the SM.
// Where a warp of another kernel is to stand beside, threads have 160 at launch, and it the 32 that are left.
template <int consumers, bool leaves_warp>
constexpr int gemm_consumer = consumers == 3 ? 160 : consumers == 2 && !leaves_warp ? 240 : 224;
template <int consumers, bool leaves_warp = false>
using GemmRegisters =
    RegisterBudget<24, gemm_consumer<consumers, leaves_warp>, consumers, consumers == 1 ? 2 : 1>;
// Attention's consumers are the same; beside three there is room for a producer of 32, and one that looks up
// pages, sequences, or ranges, or finds both ends of a window, has 40.
template <int consumers, bool looks_up>
using AttentionRegisters = RegisterBudget<consumers == 3 ? 32
                                          : looks_up     ? 40
                                                         : 24,
                                          consumers == 3 ? 160
                                          : looks_up     ? 232
                                                         : 240,
                                          consumers>;
// The producer's warpgroup prepares an epilogue, too; consumers hold their part of A.
template <int consumers> using SkinnyRegisters = RegisterBudget<72, 216, consumers>;
using StreamRegisters = SkinnyRegisters<2>; // of stream_mma, where its consumers lack some

// Operands of wgmma lie in rows of 128 bytes, 64 elements of 16 bits, whose 16-byte pieces TMA permutes by
// the row's number among 8 (its 128-byte swizzle). So a tile begins at a multiple of 8 rows.
constexpr int swizzle_row = 128, swizzle_atom = 8 * swizzle_row; // bytes
constexpr int box_bytes = 64 * swizzle_row; // 64 rows of 64: the A of one m64 product, a box of MN-major B
constexpr int descriptor_unit = 16;         // bytes, in which wgmma's descriptors count addresses

// The host reserves shared memory by a formula of its own (lib/schedule): enough for Shared. Tests, which
// define CODA_CHECKED, also refuse much more than that, since it would cost the ring a stage.
template <class Shared> constexpr bool shared_fits(i64 reserved)
{
#ifdef CODA_CHECKED
    if (reserved - (i64)sizeof(Shared) > swizzle_atom) return false;
#endif
    return (i64)sizeof(Shared) <= reserved;
}

} // namespace coda
