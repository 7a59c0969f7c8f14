// lent.cuh -- slots of the ring that a tile's epilogue gets, as if its product had further steps (C::lends).
//
// Into the first slots after the products' the producer brings what the epilogue fetches, unit by unit, one
// consumer's after the other's. The next ones it hands over empty: the consumers store from there, but for
// the first store of a fetched unit, which takes its place. When TMA has read all, they release the slots.
// Of a slot the larger operand's part is used. It holds several units.
#pragma once

#include "ptx/barrier.cuh"
#include "tile/fetch.cuh"

namespace coda {

// Of each unit of the epilogue, `stored` pieces of as many bytes are stored besides that in place of a
// fetched one.
template <class C, int units, int bytes, bool fetched, int stored> struct Lent {
    static constexpr bool of_a = C::a_rows > C::bn;
    static constexpr int slot_bytes = 128 * (of_a ? C::a_rows : C::bn), each = slot_bytes / bytes;
    static constexpr int consumers = C::pingpong ? 1 : C::groups; // of one tile
    static constexpr int incoming = fetched ? units * consumers : 0;
    static constexpr int fetched_slots = (incoming + each - 1) / each;
    static constexpr int room = stored ? (C::stages - fetched_slots) * each / (stored * consumers) : units;
    static constexpr int ring = room < units ? room : units; // units that can be stored at one time
    static constexpr int slots = fetched_slots + (ring * stored * consumers + each - 1) / each;
    static_assert(ring > 0 && slots <= C::stages);

    u32 full, memory; // shared addresses: of the slots' mbarriers, and of slot 0
    int group;
    int slot; // the first, and the parity of its phase
    u32 parity;

    struct Unit { u32 full, buffer, parity; };

    // Number n from slot `from` on.
    DEV Unit place(int n, int from) const
    {
        const int place = slot + from + n / each, wraps = place >= C::stages;
        const int i = wraps ? place - C::stages : place;
        return {full + 8 * i, memory + i * slot_bytes + n % each * bytes, parity ^ wraps};
    }
    // Unit u, as it was fetched; and piece i of what is stored of one, besides.
    DEV Unit unit(u32, int u) const { return place(group * units + u, 0); }
    DEV Unit piece(int unit, int i) const { return place((group * ring + unit) * stored + i, fetched_slots); }
    DEV void await(const Unit &u) const { ptx::mbarrier_wait(u.full, u.parity); }
    DEV void release(const Unit &) const {}
};

template <class C, class Own, int units, int bytes, bool fetched, int stored, bool lends = C::lends>
struct StageOf {
    using Type = Own;
};
template <class C, class Own, int units, int bytes, bool fetched, int stored>
struct StageOf<C, Own, units, bytes, fetched, stored, true> {
    using Type = Lent<C, units, bytes, fetched, stored>;
};

} // namespace coda
