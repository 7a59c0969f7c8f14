// cluster.cuh -- thread blocks of one cluster: their ranks, the barrier where all their threads meet, reads
// of each other's shared memory, what they send there, and arrivals on each other's mbarriers.
#pragma once

#include "types.cuh"

namespace coda::ptx {

DEV u32 cluster_rank()
{
    u32 rank;
    asm volatile("mov.u32 %0, %%cluster_ctarank;" : "=r"(rank));
    return rank;
}

// What a thread wrote before it arrives, all see after they waited. Converged warps only.
DEV void cluster_arrive() { asm volatile("barrier.cluster.arrive.release.aligned;" ::: "memory"); }
// Arrives without a promise about what the thread wrote.
DEV void cluster_arrive_relaxed() { asm volatile("barrier.cluster.arrive.relaxed.aligned;" ::: "memory"); }
DEV void cluster_wait() { asm volatile("barrier.cluster.wait.acquire.aligned;" ::: "memory"); }

// Where block `rank` of the cluster has what lies at this shared address here.
DEV u32 cluster_address(u32 address, u32 rank)
{
    u32 there;
    asm volatile("mapa.shared::cluster.u32 %0, %1, %2;" : "=r"(there) : "r"(address), "r"(rank));
    return there;
}

// On the mbarrier of any block, at its cluster_address.
DEV void cluster_mbarrier_arrive(u32 bar)
{
    asm volatile("mbarrier.arrive.shared::cluster.b64 _, [%0];" ::"r"(bar) : "memory");
}

// The same, and the wait for it: what a thread did before it arrived comes before what follows the wait, in
// whichever block; and what was sent has come.
DEV void cluster_mbarrier_release(u32 bar)
{
    asm volatile("mbarrier.arrive.release.cluster.shared::cluster.b64 _, [%0];" ::"r"(bar) : "memory");
}
DEV void cluster_mbarrier_wait(u32 bar, u32 parity)
{
    u32 done = 0;
    while (!done)
        asm volatile("{ .reg .pred p; mbarrier.try_wait.parity.acquire.cluster.shared::cta.b64 p, [%1], %2;\n"
                     "selp.u32 %0, 1, 0, p; }"
                     : "=r"(done)
                     : "r"(bar), "r"(parity)
                     : "memory");
}

DEV void shared_store(u32 address, const float (&x)[4])
{
    asm volatile("st.shared.v4.f32 [%0], {%1, %2, %3, %4};"
                 :
                 : "r"(address), "f"(x[0]), "f"(x[1]), "f"(x[2]), "f"(x[3])
                 : "memory");
}
DEV void cluster_load(float (&x)[4], u32 address)
{
    asm volatile("ld.shared::cluster.v4.f32 {%0, %1, %2, %3}, [%4];"
                 : "=f"(x[0]), "=f"(x[1]), "=f"(x[2]), "=f"(x[3])
                 : "r"(address)
                 : "memory");
}

DEV void shared_load(float (&x)[4], u32 address)
{
    asm volatile("ld.shared.v4.f32 {%0, %1, %2, %3}, [%4];"
                 : "=f"(x[0]), "=f"(x[1]), "=f"(x[2]), "=f"(x[3])
                 : "r"(address)
                 : "memory");
}
// To any block, at its cluster_address; completes 16 bytes of an mbarrier of that block, likewise.
DEV void cluster_send(u32 address, const float (&x)[4], u32 bar)
{
    asm volatile("st.async.shared::cluster.mbarrier::complete_tx::bytes.v4.f32 [%0], {%1, %2, %3, %4}, [%5];"
                 :
                 : "r"(address), "f"(x[0]), "f"(x[1]), "f"(x[2]), "f"(x[3]), "r"(bar)
                 : "memory");
}

} // namespace coda::ptx
