/*
 * driver.h -- NVIDIA's libraries as tables of functions, opened with dlopen at first need.
 *
 * The types come from cuda_abi.h, so that the build needs no toolkit. A field has the name of its symbol.
 */
#ifndef DRIVER_H
#define DRIVER_H

#include "jit.h"
#include "nccl_abi.h"

/* clang-format off */
#define DRIVER_FUNCTIONS(F)                                                                                  \
    F(cuInit) F(cuDriverGetVersion) F(cuGetErrorName) F(cuGetErrorString)                                    \
    F(cuDeviceGet) F(cuDeviceGetName) F(cuDeviceGetAttribute) F(cuDeviceTotalMem_v2)                         \
    F(cuDevicePrimaryCtxRetain) F(cuCtxGetCurrent) F(cuCtxSetCurrent) F(cuCtxGetDevice)                      \
    F(cuCtxPushCurrent_v2) F(cuCtxPopCurrent_v2) F(cuCtxGetId)                                               \
    F(cuLibraryLoadData) F(cuLibraryUnload) F(cuLibraryGetKernel)                                            \
    F(cuKernelGetFunction) F(cuKernelSetAttribute) F(cuKernelGetParamInfo) F(cuFuncLoad)                     \
    F(cuLaunchKernelEx) F(cuTensorMapEncodeTiled) F(cuTensorMapReplaceAddress)                               \
    F(cuPointerGetAttribute)                                                                                 \
    F(cuMemGetInfo_v2) F(cuMemAlloc_v2) F(cuMemFree_v2) F(cuMemcpyHtoD_v2) F(cuMemcpyDtoH_v2)                \
    F(cuMemcpyDtoD_v2) F(cuMemcpyDtoDAsync_v2) F(cuMemAllocHost_v2) F(cuMemFreeHost)                         \
    F(cuDeviceCanAccessPeer) F(cuCtxEnablePeerAccess)                                                        \
    F(cuIpcGetMemHandle) F(cuIpcOpenMemHandle_v2) F(cuIpcCloseMemHandle)                                     \
    F(cuCtxSynchronize) F(cuStreamCreate) F(cuStreamCreateWithPriority) F(cuStreamDestroy_v2)                \
    F(cuStreamSynchronize) F(cuStreamWaitEvent)                                                              \
    F(cuEventCreate) F(cuEventDestroy_v2) F(cuEventRecord) F(cuEventQuery) F(cuEventSynchronize)             \
    F(cuEventElapsedTime_v2)                                                                                 \
    F(cuStreamIsCapturing) F(cuThreadExchangeStreamCaptureMode)                                              \
    F(cuStreamBeginCapture_v2) F(cuStreamEndCapture)                                                         \
    F(cuGraphInstantiateWithFlags) F(cuGraphDestroy) F(cuGraphLaunch) F(cuGraphExecDestroy)
/* clang-format on */

/* clang-format off */
#define NVRTC_FUNCTIONS(F)                                                                                   \
    F(nvrtcVersion) F(nvrtcGetErrorString) F(nvrtcCreateProgram) F(nvrtcDestroyProgram)                      \
    F(nvrtcCompileProgram) F(nvrtcGetProgramLogSize) F(nvrtcGetProgramLog)                                   \
    F(nvrtcGetCUBINSize) F(nvrtcGetCUBIN)
/* clang-format on */

/* clang-format off */
#define CUBLASLT_FUNCTIONS(F)                                                                                \
    F(cublasLtCreate) F(cublasLtDestroy) F(cublasLtGetVersion) F(cublasLtGetStatusString) F(cublasLtMatmul)  \
    F(cublasLtMatmulDescCreate) F(cublasLtMatmulDescDestroy) F(cublasLtMatmulDescSetAttribute)               \
    F(cublasLtMatrixLayoutCreate) F(cublasLtMatrixLayoutDestroy) F(cublasLtMatrixLayoutSetAttribute)         \
    F(cublasLtMatmulPreferenceCreate) F(cublasLtMatmulPreferenceDestroy)                                     \
    F(cublasLtMatmulPreferenceSetAttribute) F(cublasLtMatmulAlgoGetHeuristic)
/* clang-format on */

/* clang-format off */
#define NCCL_FUNCTIONS(F)                                                                                    \
    F(ncclGetVersion) F(ncclGetErrorString) F(ncclGetLastError) F(ncclGetUniqueId) F(ncclCommInitRank)       \
    F(ncclCommDestroy) F(ncclCommAbort) F(ncclCommGetAsyncError) F(ncclCommCount) F(ncclCommUserRank)        \
    F(ncclCommCuDevice) F(ncclGroupStart) F(ncclGroupEnd)                                                    \
    F(ncclAllReduce) F(ncclReduceScatter) F(ncclAllGather)
/* clang-format on */

#define DRIVER_FIELD(name) __typeof__(name) *name;
struct driver {
    DRIVER_FUNCTIONS(DRIVER_FIELD)
};
struct nvrtc {
    NVRTC_FUNCTIONS(DRIVER_FIELD)
};
struct cublaslt {
    CUBLASLT_FUNCTIONS(DRIVER_FIELD)
};
struct nccl {
    NCCL_FUNCTIONS(DRIVER_FIELD)
};

/* The table, the same for the whole life of the process; or NULL with the reason in err. The driver
 * is initialised (cuInit). */
const struct driver *driver_open(char *err);
const struct nvrtc *nvrtc_open(char *err);
const struct cublaslt *cublaslt_open(char *err);
const struct nccl *nccl_open(char *err);

/* The build id of the loaded NVRTC in hex, or "" if it has none. */
const char *nvrtc_build_id(void);

/* Writes one line into err (newlines become spaces) and returns `status`. */
coda_status jit_fail(char *err, coda_status status, const char *format, ...)
    __attribute__((format(printf, 3, 4)));
/* The same for a failed driver call: "what: CUDA_ERROR_...: its text". Out of memory keeps its name. */
coda_status driver_fail(const struct driver *d, char *err, CUresult r, const char *what);

#endif
