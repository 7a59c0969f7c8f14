// fetch.cuh -- a tile that the epilogue reads, brought into shared memory by TMA while the products run.
//
// It comes in the units that a consumer drains, in their order, swizzled as they are. Each consumer has a
// ring of them, which one thread of the producer's warpgroup keeps full.
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

// Memory of one consumer: for the `stored` pieces of so many units, and behind it a ring of fetched units.
template <int units, int bytes, int slots, int stored, int depth> struct OwnStage {
    static constexpr int ring = depth, store_bytes = ring * stored * bytes;
    static constexpr int all_bytes = store_bytes + slots * bytes;
    using Ring = FetchRing<units, bytes, slots>;
    using Unit = typename Ring::Unit;
    struct Piece { u32 buffer; };

    u32 barriers, memory; // shared addresses

    DEV Ring fetched() const { return {barriers, memory + store_bytes}; }
    DEV Unit unit(u32 turn, int u) const { return fetched().unit(turn, u); }
    DEV Piece piece(int unit, int i) const { return {memory + (unit * stored + i) * bytes}; }
    DEV void await(const Unit &u) const { fetched().await(u); }
    DEV void release(const Unit &u) const { fetched().release(u); }
};

} // namespace coda
