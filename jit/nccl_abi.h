/*
 * nccl_abi.h -- the binary interface of NCCL, as far as it is called: 16 functions, and the types and numbers
 * of their arguments, under the names that NVIDIA documents. `make cuda-abi` compares all of this with
 * nccl.h, where a toolkit has one. An enum lists what is used here; other values may come back.
 */
#ifndef NCCL_ABI_H
#define NCCL_ABI_H

#include "cuda_abi.h"

typedef struct ncclComm *ncclComm_t;

typedef struct {
    char internal[128];
} ncclUniqueId;

typedef enum {
    ncclSuccess = 0,
    ncclUnhandledCudaError = 1,
    ncclSystemError = 2,
    ncclInternalError = 3,
    ncclInvalidArgument = 4,
    ncclInvalidUsage = 5,
    ncclRemoteError = 6,
    ncclInProgress = 7,
} ncclResult_t;

/* The last one makes the compiler choose the size that NVIDIA's has. */
typedef enum { ncclSum = 0, ncclMaxRedOp = 0x7fffffff } ncclRedOp_t;

typedef enum {
    ncclInt8 = 0,
    ncclFloat16 = 6,
    ncclFloat32 = 7,
    ncclBfloat16 = 9,
} ncclDataType_t;

ncclResult_t ncclGetVersion(int *version);
const char *ncclGetErrorString(ncclResult_t result);
const char *ncclGetLastError(ncclComm_t comm);

ncclResult_t ncclGetUniqueId(ncclUniqueId *id);
ncclResult_t ncclCommInitRank(ncclComm_t *comm, int ranks, ncclUniqueId id, int rank);
ncclResult_t ncclCommDestroy(ncclComm_t comm);
ncclResult_t ncclCommAbort(ncclComm_t comm);
ncclResult_t ncclCommGetAsyncError(ncclComm_t comm, ncclResult_t *error);
ncclResult_t ncclCommCount(const ncclComm_t comm, int *ranks);
ncclResult_t ncclCommUserRank(const ncclComm_t comm, int *rank);
ncclResult_t ncclCommCuDevice(const ncclComm_t comm, int *device);

ncclResult_t ncclGroupStart(void);
ncclResult_t ncclGroupEnd(void);
ncclResult_t ncclAllReduce(const void *from, void *to, size_t count, ncclDataType_t type,
                           ncclRedOp_t operation, ncclComm_t comm, CUstream stream);
ncclResult_t ncclReduceScatter(const void *from, void *to, size_t received, ncclDataType_t type,
                               ncclRedOp_t operation, ncclComm_t comm, CUstream stream);
ncclResult_t ncclAllGather(const void *from, void *to, size_t sent, ncclDataType_t type, ncclComm_t comm,
                           CUstream stream);

#endif
