// control.cuh -- emulated: see primitives/ptx/control.cuh. Kernels follow each other whole, but who loads a
// tensor must have waited, or gets what memory held before the last launch that was not early.
#pragma once

#include "types.cuh"

namespace coda::ptx {

DEV u32 shared_address(const void *p) { return emu_shared_address(p); }
DEV bool elect_one() { return emu_elect(); }
DEV int uniform(int x) { return __shfl_sync(~0u, x, 0); }
DEV u32 kept(u32 x) { return x; }
DEV int opaque(int x) { return x; }

template <int n> DEV void grow_registers() { emu_set_registers(n, true); }
template <int n> DEV void shrink_registers() { emu_set_registers(n, false); }

DEV void grid_wait() { emu_grid_wait(); }
DEV void grid_wait_knowing(int x)
{
    if (x >= 0) emu_grid_wait();
}
DEV void grid_launch_next() {}
DEV void grid_wait_not() { emu_grid_wait_not(); }

} // namespace coda::ptx
