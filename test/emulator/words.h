/* words.h -- CUDA's words for kernels that a host compiler takes, each thread a fiber (emulator.h). */
#ifndef WORDS_H
#define WORDS_H

#define _GLIBCXX_INCLUDE_NEXT_C_HEADERS /* that of C++ is a fifth of a kernel */
#include "twins.h"
#include "emulator.h"

#define CODA_CHECKED 1
#define __device__
#define __forceinline__ inline
#define __global__
#define __grid_constant__
#define __shared__ static thread_local /* the blocks of an OS thread run one after another */
#define __launch_bounds__(...)
#define __maxnreg__(...)
#define __cluster_dims__(...)
#define __align__(n) __attribute__((aligned(n)))

#define threadIdx (emu_self()->thread)
#define blockIdx (emu_self()->block)
#define blockDim (emu_self()->block_size)
#define gridDim (emu_self()->grid_size)

struct alignas(16) float4 {
    float x, y, z, w;
};
struct alignas(16) uint4 {
    unsigned x, y, z, w;
};

inline int min(int a, int b) { return a < b ? a : b; }
inline int max(int a, int b) { return a > b ? a : b; }

inline void __syncthreads() { emu_barrier(0, 0); }
inline void __syncwarp(unsigned = ~0u) { emu_warp_sync(); }
inline unsigned __cvta_generic_to_shared(const void *p) { return emu_shared_address(p); }

template <class T> T emu_shuffle_as(unsigned mask, T x, int lane, bool exclusive_or)
{
    static_assert(sizeof(T) == 4, "shuffles are of 32 bits");
    uint32_t bits;
    memcpy(&bits, &x, 4);
    bits = emu_shuffle(mask, bits, lane, exclusive_or);
    memcpy(&x, &bits, 4);
    return x;
}
template <class T> T __shfl_sync(unsigned mask, T x, int lane)
{
    return emu_shuffle_as(mask, x, lane, false);
}
template <class T> T __shfl_xor_sync(unsigned mask, T x, int distance)
{
    return emu_shuffle_as(mask, x, distance, true);
}

/* Of shared memory, whose threads are fibers of one OS thread. */
template <class T> T atomicAdd(T *p, T x)
{
    const T before = *p;
    *p += x;
    return before;
}

inline unsigned __ballot_sync(unsigned mask, int bit)
{
    unsigned all = bit ? 1u << threadIdx.x % 32 : 0;
    for (int distance = 1; distance < 32; distance *= 2) all |= __shfl_xor_sync(mask, all, distance);
    return all;
}
inline int __ffs(int x) { return __builtin_ffs(x); }
inline int __popc(unsigned x) { return __builtin_popcount(x); }

/* ---- What the entry of a kernel is made of ---- */

template <class F, F kernel> struct EmuEntry;
template <class P, void (*kernel)(P)> struct EmuEntry<void (*)(P), kernel> {
    static constexpr size_t bytes = sizeof(P);
    static void start(const void *p) { kernel(*(const P *)p); }
};

#define EMU_KERNEL(name, threads, blocks, cluster, registers)                                                \
    extern "C" __attribute__((visibility("default"))) const emu_kernel emu_kernel_##name = {                 \
        EmuEntry<decltype(&name), &name>::bytes, threads, blocks, cluster, registers,                        \
        EmuEntry<decltype(&name), &name>::start};

#endif
