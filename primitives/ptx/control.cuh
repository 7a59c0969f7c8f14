// control.cuh -- addresses, roles and the grid: shared-window addresses, one elected lane, register
// budgets of warpgroups, and the two ends of programmatic dependent launch.
#pragma once

#include "types.cuh"

namespace coda::ptx {

// Where p lies in the shared window; instructions below take such addresses as u32.
DEV u32 shared_address(const void *p) { return (u32)__cvta_generic_to_shared(p); }

// True in one lane of a converged warp.
DEV bool elect_one()
{
    u32 yes;
    asm volatile("{ .reg .pred p; elect.sync _|p, 0xffffffff; selp.u32 %0, 1, 0, p; }" : "=r"(yes));
    return yes;
}

// The same value in every lane, and the compiler knows it.
DEV int uniform(int x) { return __shfl_sync(~0u, x, 0); }

// x of each lane, which the compiler computes no second time.
DEV u32 kept(u32 x) { return __shfl_sync(~0u, x, threadIdx.x % 32); }

// x, though the compiler does not know: what follows from it is not computed ahead and kept in registers.
DEV int opaque(int x)
{
    asm volatile("" : "+r"(x));
    return x;
}

// Registers a thread of this warpgroup may use from here on; a multiple of 8. All its warps execute it.
template <int n> DEV void grow_registers() { asm volatile("setmaxnreg.inc.sync.aligned.u32 %0;" ::"n"(n)); }
template <int n> DEV void shrink_registers() { asm volatile("setmaxnreg.dec.sync.aligned.u32 %0;" ::"n"(n)); }

// Wait for the kernel before this one in the stream; let the one after it start its prologue. Before
// Hopper kernels follow each other whole.
#if !defined __CUDA_ARCH__ || __CUDA_ARCH__ >= 900
DEV void grid_wait() { asm volatile("griddepcontrol.wait;" ::: "memory"); }
// The same, when `x` has been computed, which is not negative.
DEV void grid_wait_knowing(int x)
{
    asm volatile("{ .reg .pred p; setp.ge.s32 p, %0, 0; @p griddepcontrol.wait; }" ::"r"(x) : "memory");
}
DEV void grid_launch_next() { asm volatile("griddepcontrol.launch_dependents;"); }
#else
DEV void grid_wait() {}
DEV void grid_wait_knowing(int) {}
DEV void grid_launch_next() {}
#endif
// Says instead that this thread reads nothing that the kernel before this one may write.
DEV void grid_wait_not() {}

} // namespace coda::ptx
