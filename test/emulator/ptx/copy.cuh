// copy.cuh -- emulated: see primitives/ptx/copy.cuh.
#pragma once

#include "types.cuh"

namespace coda::ptx {

template <int bytes> DEV void copy_async(u32 to, const void *from, int exist)
{
    static_assert(bytes == 4 || bytes == 8 || bytes == 16);
    emu_copy_async(to, from, bytes, exist);
}
DEV void copy_async_steady(u32 to, const void *from) { emu_copy_async_steady(to, from); }
DEV void copy_async_arrive(u32 bar) { emu_copy_arrive(bar); }
DEV void copy_async_commit() { emu_copy_commit(); }
template <int pending> DEV void copy_async_wait() { emu_copy_wait(pending); }

} // namespace coda::ptx
