// spare.cuh -- what a block's only tile (C::once) reads and stores lies in the ring, which then has more slots.
//
// Of the slots that follow those of the products, in the ring's order, the first take what the epilogue
// fetches: the producer fills them like further steps of K. The others hold what is stored: all are free when
// the last product is done. A slot is that of the larger operand.
#pragma once

#include "ptx/barrier.cuh"
#include "ptx/tma.cuh"
#include "tile/fetch.cuh"

namespace coda {

template <class C> struct SpareSlots {
    static constexpr bool of_a = C::a_rows > C::bn;
    static constexpr int slot_bytes = 128 * (of_a ? C::a_rows : C::bn);
    static constexpr int products = (int)((C::k + 63) / 64);
    static constexpr int consumers = C::pingpong ? 1 : C::groups; // with a tile

    static constexpr int each(int bytes) { return slot_bytes / bytes; } // things of so many bytes in a slot
    static constexpr int slots(int n, int bytes) { return (n + each(bytes) - 1) / each(bytes); } // for n of them
    // Thing n, from slot `first` on.
    template <int bytes> DEV static u32 place(u32 ring, int n, int first)
    {
        return ring + (products + first + n / each(bytes)) % C::stages * slot_bytes + n % each(bytes) * bytes;
    }
};

// In place of a FetchRing: the units of the only tile, one consumer's after the other's.
template <class C, int units, int bytes> struct SpareFetch {
    using Slots = SpareSlots<C>;
    static constexpr int all = units * Slots::consumers, each = Slots::each(bytes);

    u32 barriers, ring; // shared addresses: of the slots that are full, and of slot 0
    int group;

    struct Unit { u32 full, buffer, parity; };

    DEV Unit unit(u32, int u) const
    {
        const int n = group * units + u, step = Slots::products + n / each;
        return {barriers + 8 * (step % C::stages), Slots::template place<bytes>(ring, n, 0),
                (u32)(step / C::stages & 1)};
    }
    DEV void await(const Unit &u) const { ptx::mbarrier_wait(u.full, u.parity); }
    DEV void release(const Unit &) const {}
};

template <class C, int units, int bytes, int slots, bool once = C::once> struct FetchedBy {
    using Ring = FetchRing<units, bytes, slots>;
};
template <class C, int units, int bytes, int slots> struct FetchedBy<C, units, bytes, slots, true> {
    using Ring = SpareFetch<C, units, bytes>;
};

} // namespace coda
