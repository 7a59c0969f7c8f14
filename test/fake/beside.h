/*
 * beside.h -- functions of the driver that examples/gpu.h and perf/machine.h look up and the library does
 * not: the drivers of the tests have them, too. `make cuda-abi` compares them with NVIDIA's headers.
 */
#ifndef BESIDE_H
#define BESIDE_H

#include "cuda_abi.h"

CUresult cuMemcpyHtoDAsync_v2(CUdeviceptr to, const void *from, size_t bytes, CUstream stream);
CUresult cuMemcpyDtoHAsync_v2(void *to, CUdeviceptr from, size_t bytes, CUstream stream);
CUresult cuMemsetD8_v2(CUdeviceptr to, unsigned char byte, size_t bytes);
CUresult cuGraphUpload(CUgraphExec graph, CUstream stream);
/* The older one of two. */
CUresult cuEventElapsedTime(float *ms, CUevent start, CUevent end);

#endif
