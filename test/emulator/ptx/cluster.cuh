// cluster.cuh -- emulated: see primitives/ptx/cluster.cuh.
#pragma once

#include "types.cuh"

namespace coda::ptx {

DEV u32 cluster_rank() { return emu_cluster_rank(); }
DEV void cluster_arrive() { emu_cluster_arrive(); }
DEV void cluster_arrive_relaxed() { emu_cluster_arrive(); }
DEV void cluster_wait() { emu_cluster_wait(); }
DEV u32 cluster_address(u32 address, u32 rank) { return emu_cluster_address(address, rank); }
DEV void cluster_mbarrier_arrive(u32 bar) { emu_cluster_mbarrier_arrive(bar); }
DEV void cluster_mbarrier_release(u32 bar) { emu_cluster_mbarrier_arrive(bar); }
DEV void cluster_mbarrier_wait(u32 bar, u32 parity) { emu_mbarrier_wait(bar, parity); }
DEV void shared_store(u32 address, const float (&x)[4]) { emu_shared_store(address, x); }
DEV void cluster_load(float (&x)[4], u32 address) { emu_cluster_load(x, address); }
DEV void shared_load(float (&x)[4], u32 address) { emu_shared_load(x, address); }
DEV void cluster_send(u32 address, const float (&x)[4], u32 bar) { emu_cluster_send(address, x, bar); }

} // namespace coda::ptx
