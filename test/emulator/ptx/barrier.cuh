// barrier.cuh -- emulated: see primitives/ptx/barrier.cuh.
#pragma once

#include "types.cuh"

namespace coda::ptx {

DEV void mbarrier_init(u32 bar, u32 arrivals) { emu_mbarrier_init(bar, arrivals); }
DEV void mbarrier_fence_init() { emu_mbarrier_fence_init(); }
DEV void mbarrier_arrive(u32 bar) { emu_mbarrier_arrive(bar); }
DEV void mbarrier_arrive_expect(u32 bar, u32 bytes) { emu_mbarrier_arrive_expect(bar, bytes); }
DEV bool mbarrier_test(u32 bar, u32 parity) { return emu_mbarrier_test(bar, parity); }
DEV void mbarrier_wait(u32 bar, u32 parity) { emu_mbarrier_wait(bar, parity); }
DEV void named_barrier(int id, int threads) { emu_barrier(id, threads); }
DEV void named_arrive(int id, int threads) { emu_barrier_arrive(id, threads); }
DEV void fence_async_shared() { emu_fence_async(); }

} // namespace coda::ptx
