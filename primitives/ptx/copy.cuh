// copy.cuh -- cp.async: a thread copies 4, 8 or 16 bytes from global to shared memory, past its registers.
//
// Copies complete in groups of the thread that issued them: commit() closes a group, wait<n>() returns when
// all but its last n groups have come. Other threads see them after a barrier that follows the wait.
#pragma once

#include "types.cuh"

namespace coda::ptx {

// Copies the first `exist` bytes, and zeros for the rest of `bytes`. Both addresses are multiples of `bytes`;
// where nothing exists, nothing is read. 16 bytes go past L1, for which fewer have no instruction.
template <int bytes> DEV void copy_async(u32 to, const void *from, int exist)
{
    static_assert(bytes == 4 || bytes == 8 || bytes == 16);
    if constexpr (bytes == 16)
        asm volatile("{ .reg .u64 g; cvta.to.global.u64 g, %1;\n"
                     "cp.async.cg.shared.global.L2::128B [%0], [g], 16, %2; }"
                     :
                     : "r"(to), "l"(from), "r"(exist)
                     : "memory");
    else
        asm volatile("{ .reg .u64 g; cvta.to.global.u64 g, %1;\n"
                     "cp.async.ca.shared.global [%0], [g], %3, %2; }"
                     :
                     : "r"(to), "l"(from), "r"(exist), "n"(bytes)
                     : "memory");
}

// 16 bytes of what no kernel of the run writes: they may be asked for before the kernel ahead has ended.
DEV void copy_async_steady(u32 to, const void *from)
{
    asm volatile("{ .reg .u64 g; cvta.to.global.u64 g, %1;\n"
                 "cp.async.cg.shared.global.L2::128B [%0], [g], 16; }"
                 :
                 : "r"(to), "l"(from)
                 : "memory");
}
// When all copies of this thread so far have come it arrives at an mbarrier, as one of those whom that was
// initialised for.
DEV void copy_async_arrive(u32 bar)
{
    asm volatile("cp.async.mbarrier.arrive.noinc.shared::cta.b64 [%0];" ::"r"(bar) : "memory");
}

DEV void copy_async_commit() { asm volatile("cp.async.commit_group;" ::: "memory"); }
template <int pending> DEV void copy_async_wait()
{
    asm volatile("cp.async.wait_group %0;" ::"n"(pending) : "memory");
}

} // namespace coda::ptx
