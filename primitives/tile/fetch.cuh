// fetch.cuh -- tiles that the epilogue reads, brought into shared memory by TMA while the products run.
//
// They come in the units that a consumer drains, in their order, swizzled as they are; one mbarrier counts
// all that is fetched for a unit. Each consumer has a ring of units, which one thread of the producer's
// warpgroup keeps full.
#pragma once

#include "ptx/barrier.cuh"
#include "ptx/control.cuh"
#include "ptx/tma.cuh"

namespace coda {

enum { most_fetch_slots = 4, fetch_readers = 4 }; // warps

struct FetchBarriers { u64 full[most_fetch_slots], empty[most_fetch_slots]; };

// The ring of one consumer, whose every tile has `units`.
template <int units, int bytes, int slots> struct FetchRing {
    u32 barriers, buffers; // shared addresses

    struct Unit { u32 full, empty, buffer, parity; };

    // Unit u of the consumer's tile number `turn`.
    DEV Unit unit(u32 turn, int u) const
    {
        const u32 n = turn * units + u, slot = n % slots, full = barriers + 8 * slot;
        return {full, full + 8 * most_fetch_slots, buffers + slot * bytes, n / slots & 1};
    }
    DEV void init() const
    {
        for (int i = 0; i < slots; i++) {
            ptx::mbarrier_init(unit(0, i).full, 1);
            ptx::mbarrier_init(unit(0, i).empty, fetch_readers);
        }
    }
    // It is empty, and a load may begin.
    DEV void expect(const Unit &u) const
    {
        ptx::mbarrier_wait(u.empty, u.parity ^ 1);
        ptx::mbarrier_arrive_expect(u.full, bytes);
    }
    DEV void await(const Unit &u) const { ptx::mbarrier_wait(u.full, u.parity); }
    DEV void release(const Unit &u) const
    {
        __syncwarp();
        if (threadIdx.x % 32 == 0) ptx::mbarrier_arrive(u.empty);
    }
};

// Memory of one consumer: for what is stored of `depth` units, and behind it a ring of fetched units.
template <int units, int fetched_bytes, int slots, int stored_bytes, int depth> struct OwnStage {
    static constexpr int ring = depth, store_bytes = ring * stored_bytes;
    static constexpr int all_bytes = store_bytes + slots * fetched_bytes;
    using Ring = FetchRing<units, fetched_bytes, slots>;
    using Unit = typename Ring::Unit;
    struct Piece { u32 buffer; };

    u32 barriers, memory; // shared addresses

    DEV Ring fetched() const { return {barriers, memory + store_bytes}; }
    DEV Unit unit(u32 turn, int u) const { return fetched().unit(turn, u); }
    DEV Piece piece(int unit, int offset) const { return {memory + unit * stored_bytes + offset}; }
    DEV void await(const Unit &u) const { fetched().await(u); }
    DEV void release(const Unit &u) const { fetched().release(u); }
};

} // namespace coda
