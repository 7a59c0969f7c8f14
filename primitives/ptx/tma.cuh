// tma.cuh -- bulk copies of boxes between a tensor in global memory and shared memory.
//
// Coordinates are in elements, innermost dimension first. Outside the tensor a load reads zeros and a
// store writes nothing. Loads complete on an mbarrier, always with the bytes of the full box; stores
// complete in groups of the thread that issued them.
#pragma once

#include "types.cuh"

namespace coda {

struct alignas(64) TensorMap {
    u64 opaque[16];
}; // made by cuTensorMapEncodeTiled

} // namespace coda

namespace coda::ptx {

DEV void tma_prefetch_map(const TensorMap *map)
{
    asm volatile("prefetch.tensormap [%0];" ::"l"(map) : "memory");
}

DEV void tma_load(u32 to, const TensorMap *map, u32 bar, int x, int y)
{
    asm volatile("cp.async.bulk.tensor.2d.shared::cluster.global.tile.mbarrier::complete_tx::bytes"
                 " [%0], [%1, {%3, %4}], [%2];"
                 :
                 : "r"(to), "l"(map), "r"(bar), "r"(x), "r"(y)
                 : "memory");
}
DEV void tma_load(u32 to, const TensorMap *map, u32 bar, int x, int y, int z)
{
    asm volatile("cp.async.bulk.tensor.3d.shared::cluster.global.tile.mbarrier::complete_tx::bytes"
                 " [%0], [%1, {%3, %4, %5}], [%2];"
                 :
                 : "r"(to), "l"(map), "r"(bar), "r"(x), "r"(y), "r"(z)
                 : "memory");
}
DEV void tma_load(u32 to, const TensorMap *map, u32 bar, int x, int y, int z, int w)
{
    asm volatile("cp.async.bulk.tensor.4d.shared::cluster.global.tile.mbarrier::complete_tx::bytes"
                 " [%0], [%1, {%3, %4, %5, %6}], [%2];"
                 :
                 : "r"(to), "l"(map), "r"(bar), "r"(x), "r"(y), "r"(z), "r"(w)
                 : "memory");
}
DEV void tma_load(u32 to, const TensorMap *map, u32 bar, int x, int y, int z, int w, int v)
{
    asm volatile("cp.async.bulk.tensor.5d.shared::cluster.global.tile.mbarrier::complete_tx::bytes"
                 " [%0], [%1, {%3, %4, %5, %6, %7}], [%2];"
                 :
                 : "r"(to), "l"(map), "r"(bar), "r"(x), "r"(y), "r"(z), "r"(w), "r"(v)
                 : "memory");
}

// The same, of what is read once: L2 may forget it first.
constexpr u64 evict_first = 0x12f0000000000000;

DEV void tma_load_once(u32 to, const TensorMap *map, u32 bar, int x, int y, int z)
{
    asm volatile("cp.async.bulk.tensor.3d.shared::cluster.global.tile.mbarrier::complete_tx::bytes"
                 ".L2::cache_hint [%0], [%1, {%3, %4, %5}], [%2], %6;"
                 :
                 : "r"(to), "l"(map), "r"(bar), "r"(x), "r"(y), "r"(z), "l"(evict_first)
                 : "memory");
}
DEV void tma_load_once(u32 to, const TensorMap *map, u32 bar, int x, int y, int z, int w)
{
    asm volatile("cp.async.bulk.tensor.4d.shared::cluster.global.tile.mbarrier::complete_tx::bytes"
                 ".L2::cache_hint [%0], [%1, {%3, %4, %5, %6}], [%2], %7;"
                 :
                 : "r"(to), "l"(map), "r"(bar), "r"(x), "r"(y), "r"(z), "r"(w), "l"(evict_first)
                 : "memory");
}
DEV void tma_load_once(u32 to, const TensorMap *map, u32 bar, int x, int y, int z, int w, int v)
{
    asm volatile("cp.async.bulk.tensor.5d.shared::cluster.global.tile.mbarrier::complete_tx::bytes"
                 ".L2::cache_hint [%0], [%1, {%3, %4, %5, %6, %7}], [%2], %8;"
                 :
                 : "r"(to), "l"(map), "r"(bar), "r"(x), "r"(y), "r"(z), "r"(w), "r"(v), "l"(evict_first)
                 : "memory");
}

// A load for all blocks of a cluster whose ranks are bits of `ranks`: to the same place in each, and to
// the same mbarrier of each.
DEV void tma_multicast(u32 to, const TensorMap *map, u32 bar, u16 ranks, int x, int y, int z)
{
    asm volatile("cp.async.bulk.tensor.3d.shared::cluster.global.tile.mbarrier::complete_tx::bytes"
                 ".multicast::cluster [%0], [%1, {%3, %4, %5}], [%2], %6;"
                 :
                 : "r"(to), "l"(map), "r"(bar), "r"(x), "r"(y), "r"(z), "h"(ranks)
                 : "memory");
}
DEV void tma_multicast(u32 to, const TensorMap *map, u32 bar, u16 ranks, int x, int y, int z, int w)
{
    asm volatile("cp.async.bulk.tensor.4d.shared::cluster.global.tile.mbarrier::complete_tx::bytes"
                 ".multicast::cluster [%0], [%1, {%3, %4, %5, %6}], [%2], %7;"
                 :
                 : "r"(to), "l"(map), "r"(bar), "r"(x), "r"(y), "r"(z), "r"(w), "h"(ranks)
                 : "memory");
}

// Bytes that are adjacent, no box: a multiple of 16, as both addresses are.
DEV void bulk_load(u32 to, const void *from, u32 bytes, u32 bar)
{
    asm volatile("cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes [%0], [%1], %2, [%3];"
                 :
                 : "r"(to), "l"(from), "r"(bytes), "r"(bar)
                 : "memory");
}
// The same of what is read once.
DEV void bulk_load_once(u32 to, const void *from, u32 bytes, u32 bar)
{
    asm volatile("cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes.L2::cache_hint"
                 " [%0], [%1], %2, [%3], %4;"
                 :
                 : "r"(to), "l"(from), "r"(bytes), "r"(bar), "l"(evict_first)
                 : "memory");
}

DEV void tma_store(const TensorMap *map, u32 from, int x, int y, int z)
{
    asm volatile("cp.async.bulk.tensor.3d.global.shared::cta.tile.bulk_group [%0, {%2, %3, %4}], [%1];"
                 :
                 : "l"(map), "r"(from), "r"(x), "r"(y), "r"(z)
                 : "memory");
}
DEV void tma_store(const TensorMap *map, u32 from, int x, int y, int z, int w)
{
    asm volatile("cp.async.bulk.tensor.4d.global.shared::cta.tile.bulk_group [%0, {%2, %3, %4, %5}], [%1];"
                 :
                 : "l"(map), "r"(from), "r"(x), "r"(y), "r"(z), "r"(w)
                 : "memory");
}
// Adds fp32 elements to what is there, each at once; of subnormals zeros remain. It counts as a store.
DEV void tma_add(const TensorMap *map, u32 from, int x, int y, int z)
{
    asm volatile("cp.reduce.async.bulk.tensor.3d.global.shared::cta.add.tile.bulk_group"
                 " [%0, {%2, %3, %4}], [%1];"
                 :
                 : "l"(map), "r"(from), "r"(x), "r"(y), "r"(z)
                 : "memory");
}
DEV void tma_store_commit() { asm volatile("cp.async.bulk.commit_group;" ::: "memory"); }

// At most `pending` of this thread's newest groups have not yet read their shared memory ...
template <int pending> DEV void tma_store_wait_read()
{
    asm volatile("cp.async.bulk.wait_group.read %0;" ::"n"(pending) : "memory");
}
// ... or not yet written global memory.
template <int pending> DEV void tma_store_wait()
{
    asm volatile("cp.async.bulk.wait_group %0;" ::"n"(pending) : "memory");
}

} // namespace coda::ptx
