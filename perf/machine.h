/*
 * machine.h -- the GPU as measurements need it: memory, events, graphs and launches through libcuda,
 * opened at run time.
 */
#ifndef MACHINE_H
#define MACHINE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "coda.h"

typedef uint64_t address;              /* CUdeviceptr */
typedef struct CUevent_st *event;      /* CUevent */
typedef struct CUgraph_st *graph;      /* CUgraph */
typedef struct CUgraphExec_st *replay; /* CUgraphExec */
typedef struct CUgraphNode_st *node;   /* CUgraphNode */
typedef struct CUfunc_st *function;    /* CUfunction */
typedef struct CUmod_st *module;       /* CUmodule */

/* CUgraphEdgeData, CUlaunchConfig and CUDA_KERNEL_NODE_PARAMS_v2. */
struct edge {
    unsigned char from, to, type, reserved[5];
};
struct launch_config {
    unsigned grid[3], block[3], shared_bytes;
    coda_stream stream;
    void *attributes;
    unsigned attribute_count;
};
struct kernel_params {
    function f;
    unsigned grid[3], block[3], shared_bytes;
    void **params, **extra;
    void *kernel, *context;
};

/* field, symbol, parameters; every one returns a CUresult. */
#define MACHINE_CALLS(X)                                                                                     \
    X(init, "cuInit", (unsigned))                                                                            \
    X(device_get, "cuDeviceGet", (int *, int))                                                               \
    X(device_name, "cuDeviceGetName", (char *, int, int))                                                    \
    X(device_bus, "cuDeviceGetPCIBusId", (char *, int, int))                                                 \
    X(context_retain, "cuDevicePrimaryCtxRetain", (void **, int))                                            \
    X(context_set, "cuCtxSetCurrent", (void *))                                                              \
    X(alloc, "cuMemAlloc_v2", (address *, size_t))                                                           \
    X(set, "cuMemsetD8_v2", (address, unsigned char, size_t))                                                \
    X(upload, "cuMemcpyHtoD_v2", (address, const void *, size_t))                                            \
    X(download, "cuMemcpyDtoH_v2", (void *, address, size_t))                                                \
    X(copy, "cuMemcpyDtoD_v2", (address, address, size_t))                                                   \
    X(memory, "cuMemGetInfo_v2", (size_t *, size_t *))                                                       \
    X(stream_new, "cuStreamCreate", (coda_stream *, unsigned))                                               \
    X(stream_wait, "cuStreamSynchronize", (coda_stream))                                                     \
    X(event_new, "cuEventCreate", (event *, unsigned))                                                       \
    X(event_record, "cuEventRecord", (event, coda_stream))                                                   \
    X(event_ms, "cuEventElapsedTime", (float *, event, event))                                               \
    X(event_wait, "cuEventSynchronize", (event))                                                             \
    X(capture_begin, "cuStreamBeginCapture_v2", (coda_stream, int))                                          \
    X(capture_end, "cuStreamEndCapture", (coda_stream, graph *))                                             \
    X(graph_new, "cuGraphCreate", (graph *, unsigned))                                                       \
    X(graph_free, "cuGraphDestroy", (graph))                                                                 \
    X(graph_nodes, "cuGraphGetNodes", (graph, node *, size_t *))                                             \
    X(graph_roots, "cuGraphGetRootNodes", (graph, node *, size_t *))                                         \
    X(node_next, "cuGraphNodeGetDependentNodes_v2", (node, node *, struct edge *, size_t *))                 \
    X(function_name, "cuFuncGetName", (const char **, function))                                             \
    X(kernel_name, "cuKernelGetName", (const char **, void *))                                               \
    X(kernel_get, "cuGraphKernelNodeGetParams_v2", (node, struct kernel_params *))                           \
    X(kernel_add, "cuGraphAddKernelNode_v2",                                                                 \
      (node *, graph, const node *, size_t, const struct kernel_params *))                                   \
    X(kernel_attributes, "cuGraphKernelNodeCopyAttributes", (node, node))                                    \
    X(replay_new, "cuGraphInstantiateWithFlags", (replay *, graph, unsigned long long))                      \
    X(replay_free, "cuGraphExecDestroy", (replay))                                                           \
    X(replay_run, "cuGraphLaunch", (replay, coda_stream))                                                    \
    X(module_load, "cuModuleLoadData", (module *, const void *))                                             \
    X(module_function, "cuModuleGetFunction", (function *, module, const char *))                            \
    X(launch, "cuLaunchKernelEx", (const struct launch_config *, function, void **, void **))

struct machine {
    void *lib;
    char name[128];
    coda_stream stream;
#define MACHINE_FIELD(field, symbol, parameters) int(*field) parameters;
    MACHINE_CALLS(MACHINE_FIELD)
#undef MACHINE_FIELD
};

/* Opens the first GPU, with its primary context current. Ends the program if there is none. */
void machine_open(struct machine *m);

/* Memory of the host in a GPU's place, for the CPU device: what moves bytes and waits, and nothing that
 * launches or measures. */
void machine_of_host(struct machine *m);

bool machine_exists(void);

double clock_us(void); /* the host's, from some point on */

/* Ends the program with the name of a call that failed. */
void must(int result, const char *what);

#endif
