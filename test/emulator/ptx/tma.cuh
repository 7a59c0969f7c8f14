// tma.cuh -- emulated: see primitives/ptx/tma.cuh.
#pragma once

#include "types.cuh"

namespace coda {

struct alignas(64) TensorMap {
    u64 opaque[16];
};

} // namespace coda

namespace coda::ptx {

DEV void tma_prefetch_map(const TensorMap *map) { emu_prefetch_map(map); }

DEV void tma_load(u32 to, const TensorMap *map, u32 bar, int x, int y)
{
    const int at[] = {x, y};
    emu_tensor_load(to, map, bar, 2, at);
}
DEV void tma_load(u32 to, const TensorMap *map, u32 bar, int x, int y, int z)
{
    const int at[] = {x, y, z};
    emu_tensor_load(to, map, bar, 3, at);
}
DEV void tma_load(u32 to, const TensorMap *map, u32 bar, int x, int y, int z, int w)
{
    const int at[] = {x, y, z, w};
    emu_tensor_load(to, map, bar, 4, at);
}
DEV void tma_load(u32 to, const TensorMap *map, u32 bar, int x, int y, int z, int w, int v)
{
    const int at[] = {x, y, z, w, v};
    emu_tensor_load(to, map, bar, 5, at);
}
DEV void tma_load_once(u32 to, const TensorMap *map, u32 bar, int x, int y, int z)
{
    tma_load(to, map, bar, x, y, z);
}
DEV void tma_load_once(u32 to, const TensorMap *map, u32 bar, int x, int y, int z, int w)
{
    tma_load(to, map, bar, x, y, z, w);
}
DEV void tma_load_once(u32 to, const TensorMap *map, u32 bar, int x, int y, int z, int w, int v)
{
    tma_load(to, map, bar, x, y, z, w, v);
}
DEV void tma_multicast(u32 to, const TensorMap *map, u32 bar, u16 ranks, int x, int y, int z)
{
    const int at[] = {x, y, z};
    emu_tensor_multicast(to, map, bar, ranks, 3, at);
}
DEV void tma_multicast(u32 to, const TensorMap *map, u32 bar, u16 ranks, int x, int y, int z, int w)
{
    const int at[] = {x, y, z, w};
    emu_tensor_multicast(to, map, bar, ranks, 4, at);
}
DEV void bulk_load(u32 to, const void *from, u32 bytes, u32 bar) { emu_bulk_load(to, from, bytes, bar); }
DEV void bulk_load_once(u32 to, const void *from, u32 bytes, u32 bar) { emu_bulk_load(to, from, bytes, bar); }

DEV void tma_store(const TensorMap *map, u32 from, int x, int y, int z)
{
    const int at[] = {x, y, z};
    emu_tensor_store(map, from, 3, at);
}
DEV void tma_store(const TensorMap *map, u32 from, int x, int y, int z, int w)
{
    const int at[] = {x, y, z, w};
    emu_tensor_store(map, from, 4, at);
}
DEV void tma_add(const TensorMap *map, u32 from, int x, int y, int z)
{
    const int at[] = {x, y, z};
    emu_tensor_add(map, from, 3, at);
}
DEV void tma_store_commit() { emu_store_commit(); }
template <int pending> DEV void tma_store_wait_read() { emu_store_wait(pending, true); }
template <int pending> DEV void tma_store_wait() { emu_store_wait(pending, false); }

} // namespace coda::ptx
