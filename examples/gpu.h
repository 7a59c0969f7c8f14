/*
 * gpu.h -- device memory, copies, timing and captured graphs through libcuda, opened at run time.
 *
 * For programs on coda.h that want no CUDA headers and must also start where there is no driver.
 */
#ifndef GPU_H
#define GPU_H

#include <dlfcn.h>
#include <stddef.h>
#include <stdint.h>

#include "coda.h"

typedef uint64_t gpu_address; /* CUdeviceptr */
typedef struct CUevent_st *gpu_event;
typedef struct CUgraph_st *gpu_graph;      /* what a stream captured ... */
typedef struct CUgraphExec_st *gpu_replay; /* ... made ready to be launched */

struct gpu {
    void *lib;
    int (*init)(unsigned);
    int (*device_get)(int *, int);
    int (*device_name)(char *, int, int);
    int (*context_retain)(void **, int);
    int (*context_set)(void *);
    int (*alloc)(gpu_address *, size_t);
    int (*free)(gpu_address);
    int (*set)(gpu_address, unsigned char, size_t);
    int (*upload)(gpu_address, const void *, size_t);
    int (*download)(void *, gpu_address, size_t);
    int (*host_alloc)(void **, size_t); /* memory of the host that copies go to and from by themselves */
    int (*host_free)(void *);
    int (*upload_later)(gpu_address, const void *, size_t, coda_stream);
    int (*download_later)(void *, gpu_address, size_t, coda_stream);
    int (*stream_new)(coda_stream *, unsigned);
    int (*stream_wait)(coda_stream);
    int (*stream_free)(coda_stream);
    int (*event_new)(gpu_event *, unsigned);
    int (*event_free)(gpu_event);
    int (*event_record)(gpu_event, coda_stream);
    int (*event_wait)(gpu_event);
    int (*event_ms)(float *, gpu_event, gpu_event);
    int (*capture_begin)(coda_stream, int mode);
    int (*capture_end)(coda_stream, gpu_graph *);
    int (*replay_new)(gpu_replay *, gpu_graph, unsigned long long flags);
    int (*replay_upload)(gpu_replay, coda_stream); /* ahead of the first run, which would do it itself */
    int (*replay_run)(gpu_replay, coda_stream);
    int (*graph_free)(gpu_graph);
    int (*replay_free)(gpu_replay);
    int (*copy)(gpu_address, gpu_address, size_t); /* from the second to the first, in the default stream */
    void *context;                                 /* of the GPU; context_set() makes it another thread's */
    char name[128];
};

/* Makes the primary context of GPU `number` current. 0, or -1 if there is no driver or no such GPU. */
static inline int gpu_open_at(struct gpu *g, int number)
{
    int device;
    if (!(g->lib = dlopen("libcuda.so.1", RTLD_NOW | RTLD_LOCAL))) return -1;
#define GPU_FIND(field, symbol)                                                                              \
    if (!(*(void **)&g->field = dlsym(g->lib, symbol))) return -1
    GPU_FIND(init, "cuInit");
    GPU_FIND(device_get, "cuDeviceGet");
    GPU_FIND(device_name, "cuDeviceGetName");
    GPU_FIND(context_retain, "cuDevicePrimaryCtxRetain");
    GPU_FIND(context_set, "cuCtxSetCurrent");
    GPU_FIND(alloc, "cuMemAlloc_v2");
    GPU_FIND(free, "cuMemFree_v2");
    GPU_FIND(set, "cuMemsetD8_v2");
    GPU_FIND(upload, "cuMemcpyHtoD_v2");
    GPU_FIND(download, "cuMemcpyDtoH_v2");
    GPU_FIND(host_alloc, "cuMemAllocHost_v2");
    GPU_FIND(host_free, "cuMemFreeHost");
    GPU_FIND(upload_later, "cuMemcpyHtoDAsync_v2");
    GPU_FIND(download_later, "cuMemcpyDtoHAsync_v2");
    GPU_FIND(stream_new, "cuStreamCreate");
    GPU_FIND(stream_wait, "cuStreamSynchronize");
    GPU_FIND(stream_free, "cuStreamDestroy_v2");
    GPU_FIND(event_new, "cuEventCreate");
    GPU_FIND(event_free, "cuEventDestroy_v2");
    GPU_FIND(event_record, "cuEventRecord");
    GPU_FIND(event_wait, "cuEventSynchronize");
    GPU_FIND(event_ms, "cuEventElapsedTime");
    GPU_FIND(capture_begin, "cuStreamBeginCapture_v2");
    GPU_FIND(capture_end, "cuStreamEndCapture");
    GPU_FIND(replay_new, "cuGraphInstantiateWithFlags");
    GPU_FIND(replay_upload, "cuGraphUpload");
    GPU_FIND(replay_run, "cuGraphLaunch");
    GPU_FIND(graph_free, "cuGraphDestroy");
    GPU_FIND(replay_free, "cuGraphExecDestroy");
    GPU_FIND(copy, "cuMemcpyDtoD_v2");
#undef GPU_FIND
    if (g->init(0) || g->device_get(&device, number) || g->device_name(g->name, sizeof g->name, device))
        return -1;
    return g->context_retain(&g->context, device) || g->context_set(g->context) ? -1 : 0;
}

/* The same of the first one. */
static inline int gpu_open(struct gpu *g) { return gpu_open_at(g, 0); }

/* Memory that holds `bytes`; 0 when there is not enough. */
static inline gpu_address gpu_alloc(const struct gpu *g, size_t bytes)
{
    gpu_address p;
    return g->alloc(&p, bytes ? bytes : 1) ? 0 : p;
}

#endif
