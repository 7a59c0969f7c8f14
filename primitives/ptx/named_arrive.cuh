// named_arrive.cuh -- arriving at a named barrier without waiting: the signalling half of named_barrier().
#pragma once

#include "types.cuh"

namespace coda::ptx {

// Counts this warp's threads at barrier `id`; `threads` is the total that named_barrier() waits for.
DEV void named_arrive(int id, int threads)
{
    asm volatile("bar.arrive %0, %1;" ::"r"(id), "r"(threads) : "memory");
}

} // namespace coda::ptx
