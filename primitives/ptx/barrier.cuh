// barrier.cuh -- mbarriers, which count arrivals and bytes; named barriers, which count threads; and
// the fences that order them.
//
// A fresh mbarrier is in phase 0. wait(bar, parity) returns once the phase of that parity has
// completed, so on a fresh barrier wait(bar, 1) returns at once and wait(bar, 0) blocks.
#pragma once

#include "types.cuh"

namespace coda::ptx {

DEV void mbarrier_init(u32 bar, u32 arrivals)
{
    asm volatile("mbarrier.init.shared::cta.b64 [%0], %1;" ::"r"(bar), "r"(arrivals));
}

// Makes inits visible to other blocks and to the TMA unit. Other threads of the block wait at a barrier.
DEV void mbarrier_fence_init() { asm volatile("fence.mbarrier_init.release.cluster;" ::: "memory"); }

DEV void mbarrier_arrive(u32 bar)
{
    asm volatile("mbarrier.arrive.shared::cta.b64 _, [%0];" ::"r"(bar) : "memory");
}

// Arrives, and holds the phase open until `bytes` more bytes have landed.
DEV void mbarrier_arrive_expect(u32 bar, u32 bytes)
{
    asm volatile("mbarrier.arrive.expect_tx.shared::cta.b64 _, [%0], %1;" ::"r"(bar), "r"(bytes) : "memory");
}

// Has the phase of that parity completed? From Hopper on the thread may sleep for a while before it says no.
DEV bool mbarrier_test(u32 bar, u32 parity)
{
    u32 done;
#if !defined __CUDA_ARCH__ || __CUDA_ARCH__ >= 900
    asm volatile("{ .reg .pred p; mbarrier.try_wait.parity.shared::cta.b64 p, [%1], %2;\n"
#else
    asm volatile("{ .reg .pred p; mbarrier.test_wait.parity.shared::cta.b64 p, [%1], %2;\n"
#endif
                 "selp.u32 %0, 1, 0, p; }"
                 : "=r"(done)
                 : "r"(bar), "r"(parity)
                 : "memory");
    return done;
}
DEV void mbarrier_wait(u32 bar, u32 parity)
{
    while (!mbarrier_test(bar, parity)) {}
}

// `threads` threads meet at barrier `id`, 0..15; __syncthreads is barrier 0 of all.
DEV void named_barrier(int id, int threads)
{
    asm volatile("bar.sync %0, %1;" ::"r"(id), "r"(threads) : "memory");
}
// A warp is among them, but does not wait.
DEV void named_arrive(int id, int threads)
{
    asm volatile("bar.arrive %0, %1;" ::"r"(id), "r"(threads) : "memory");
}

// Shared memory written by plain stores becomes visible to TMA and wgmma.
DEV void fence_async_shared() { asm volatile("fence.proxy.async.shared::cta;" ::: "memory"); }

} // namespace coda::ptx
