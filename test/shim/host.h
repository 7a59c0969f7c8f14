/*
 * host.h -- what a host compiler lacks to take the device files of primitives/: CUDA's words, and twins of
 * the PTX in types.cuh and math.cuh. Included before them by -include.
 */
#ifndef HOST_H
#define HOST_H

#include "twins.h"

#define __device__
#define __forceinline__ inline

/* ---- A block of threads, one after another or as fold_run's real threads (shim.cpp) ---- */

struct HostIndex {
    int x;
};
extern thread_local HostIndex threadIdx;
float __shfl_xor_sync(unsigned mask, float x, int distance);
void __syncthreads();

#endif
