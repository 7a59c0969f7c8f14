// lent.cuh -- slots of the ring that a tile's epilogue gets, as if its product had further steps
// (Config::lends).
//
// Into the first slots after the products' the producer brings what the epilogue fetches, unit by unit, one
// consumer's after the other's. The next ones it hands over empty: the consumers store from there, but for
// the first store of a fetched unit, which takes its place. When TMA has read all, they release the slots.
// Of a slot the larger operand's part is used. It holds several units.
#pragma once

#include "ptx/barrier.cuh"
#include "tile/fetch.cuh"
#include "tile/resources.cuh"

namespace coda {

// Of each unit of the epilogue, `stored` pieces of as many bytes are stored besides that in place of a
// fetched one.
template <class Config, int units, int bytes, bool fetched, int stored> struct Lent {
    static constexpr bool of_a = Config::a_rows > Config::bn;
    static constexpr int slot_bytes = swizzle_row * (of_a ? Config::a_rows : Config::bn),
                         each = slot_bytes / bytes;
    static constexpr int consumers = Config::pingpong ? 1 : Config::groups; // of one tile
    static constexpr int incoming = fetched ? units * consumers : 0;
    static constexpr int fetched_slots = (incoming + each - 1) / each;
    static constexpr int room =
        stored ? (Config::stages - fetched_slots) * each / (stored * consumers) : units;
    static constexpr int ring = room < units ? room : units; // units that can be stored at one time
    static constexpr int slots = fetched_slots + (ring * stored * consumers + each - 1) / each;
    static_assert(ring > 0 && slots <= Config::stages);

    u32 full, memory; // shared addresses: of the slots' mbarriers, and of slot 0
    int group;
    int slot; // the first, and the parity of its phase
    u32 parity;

    struct Unit { u32 full, buffer, parity; };

    // Number n from slot `from` on.
    DEV Unit place(int n, int from) const
    {
        const int place = slot + from + n / each, wraps = place >= Config::stages;
        const int i = wraps ? place - Config::stages : place;
        return {full + 8 * i, memory + i * slot_bytes + n % each * bytes, parity ^ wraps};
    }
    // Unit u, as it was fetched; and the piece at this offset of what is stored of one, besides.
    DEV Unit unit(u32, int u) const { return place(group * units + u, 0); }
    DEV Unit piece(int unit, int offset) const
    {
        return place((group * ring + unit) * stored + offset / bytes, fetched_slots);
    }
    DEV void await(const Unit &u) const { ptx::mbarrier_wait(u.full, u.parity); }
    DEV void release(const Unit &) const {}
};

template <class Config, class Own, int units, int bytes, bool fetched, int stored, bool lends = Config::lends>
struct StageOf { using Type = Own; };
template <class Config, class Own, int units, int bytes, bool fetched, int stored>
struct StageOf<Config, Own, units, bytes, fetched, stored, true> {
    using Type = Lent<Config, units, bytes, fetched, stored>;
};

} // namespace coda
