// ring.cuh -- where a thread stands in a ring of slots, which a producer fills and consumers empty in order.
//
// It stands on nothing. Each slot has two mbarriers, `full` and `empty`, whose phases end once in each round.
#pragma once

#include "types.cuh"

namespace coda {

// The slot that is next, and the parity of the phase of its barrier that is waited for.
template <int slots> struct RingCursor {
    int slot = 0;
    u32 parity = 0;

    // A consumer waits for the first phase of `full`. A producer has none of `empty` to wait for in its first
    // round: the phase before the first one counts as over.
    DEV static RingCursor consumer() { return {0, 0}; }
    DEV static RingCursor producer() { return {0, 1}; }
    // A consumer's, so many slots further on.
    DEV static RingCursor after(u32 count) { return {(int)(count % slots), count / slots & 1}; }

    DEV void next()
    {
        if (++slot == slots) slot = 0, parity ^= 1;
    }
};

} // namespace coda
