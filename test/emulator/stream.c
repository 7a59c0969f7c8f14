/* stream.c -- streams, which run at once; events; graphs, which are lists of launches. */
#include "driver_inside.h"
#include "driver.h"

#include <stdlib.h>
#include <string.h>
#include <time.h>

struct record {
    struct record *next;
    const struct emulated_kernel *kernel; /* NULL: a call */
    unsigned grid, threads, shared;
    void *parameters;
    size_t bytes; /* of them */
    int (*call)(void *parameters);
};
struct CUgraph_st {
    struct record *first, **end;
};
struct CUgraphExec_st {
    struct CUgraph_st graph;
};
struct CUstream_st {
    struct CUgraph_st *recording;
    bool stuck; /* what was recorded behind it never happens */
};
struct CUevent_st {
    double ms;
    CUstream stream;
};

/* ---- Streams and events ---- */

CUresult cuStreamCreate(CUstream *out, unsigned flags)
{
    (void)flags;
    return *out = calloc(1, sizeof **out), *out ? CUDA_SUCCESS : CUDA_ERROR_OUT_OF_MEMORY;
}
CUresult cuStreamDestroy_v2(CUstream s) { return free(s), CUDA_SUCCESS; }
CUresult cuStreamSynchronize(CUstream s) { return (void)s, CUDA_SUCCESS; }

CUresult cuEventCreate(CUevent *out, unsigned flags)
{
    (void)flags;
    return *out = calloc(1, sizeof **out), *out ? CUDA_SUCCESS : CUDA_ERROR_OUT_OF_MEMORY;
}
CUresult cuEventDestroy_v2(CUevent e) { return free(e), CUDA_SUCCESS; }
CUresult cuEventSynchronize(CUevent e) { return (void)e, CUDA_SUCCESS; }

CUresult cuEventRecord(CUevent e, CUstream s)
{
    struct timespec t;
    e->stream = s;
    clock_gettime(CLOCK_MONOTONIC, &t);
    e->ms = 1e3 * (double)t.tv_sec + 1e-6 * (double)t.tv_nsec;
    return CUDA_SUCCESS;
}
CUresult cuEventQuery(CUevent e)
{
    return e->stream && e->stream->stuck ? CUDA_ERROR_NOT_READY : CUDA_SUCCESS;
}
CUresult cuEventElapsedTime_v2(float *ms, CUevent from, CUevent to)
{
    return *ms = (float)(to->ms - from->ms), CUDA_SUCCESS;
}
/* By its older name, too. */
CUresult cuEventElapsedTime(float *ms, CUevent from, CUevent to)
{
    return cuEventElapsedTime_v2(ms, from, to);
}

/* ---- Graphs ---- */

static struct CUgraph_st *new_graph(void)
{
    struct CUgraph_st *g = calloc(1, sizeof *g);
    if (g) g->end = &g->first;
    return g;
}

static bool append(struct CUgraph_st *g, const struct record *from)
{
    struct record *r = malloc(sizeof *r);
    size_t bytes = from->bytes;
    if (!r) return false;
    *r = *from;
    r->next = NULL;
    if (!(r->parameters = aligned_alloc(128, (bytes + 127) / 128 * 128))) return free(r), false;
    memcpy(r->parameters, from->parameters, bytes);
    *g->end = r;
    g->end = &r->next;
    return true;
}

static void free_records(struct CUgraph_st *g)
{
    for (struct record *r = g->first, *next; r; r = next) {
        next = r->next;
        free(r->parameters);
        free(r);
    }
}

bool stream_records(CUstream s) { return s && s->recording; }

CUresult stream_record(CUstream s, const struct emulated_kernel *k, const void *parameters, unsigned grid,
                       unsigned threads, unsigned shared)
{
    struct record r = {.kernel = k,
                       .grid = grid,
                       .threads = threads,
                       .shared = shared,
                       .parameters = (void *)(uintptr_t)parameters,
                       .bytes = k->entry->parameters};
    return append(s->recording, &r) ? CUDA_SUCCESS : CUDA_ERROR_OUT_OF_MEMORY;
}

int emu_stream_call(void *stream, int (*call)(void *), void *parameters, size_t bytes)
{
    struct record r = {.call = call, .parameters = parameters, .bytes = bytes};
    if (!stream_records(stream)) return call(parameters);
    return append(((CUstream)stream)->recording, &r) ? CUDA_SUCCESS : CUDA_ERROR_OUT_OF_MEMORY;
}

void emu_stream_stick(void *stream, int stuck)
{
    if (stream) ((CUstream)stream)->stuck = stuck;
}

CUresult cuStreamIsCapturing(CUstream s, CUstreamCaptureStatus *out)
{
    *out = stream_records(s) ? CU_STREAM_CAPTURE_STATUS_ACTIVE : CU_STREAM_CAPTURE_STATUS_NONE;
    return CUDA_SUCCESS;
}

CUresult cuThreadExchangeStreamCaptureMode(CUstreamCaptureMode *mode) { return (void)mode, CUDA_SUCCESS; }

CUresult cuStreamBeginCapture_v2(CUstream s, CUstreamCaptureMode mode)
{
    (void)mode;
    if (!s || s->recording) return CUDA_ERROR_INVALID_VALUE;
    return s->recording = new_graph(), s->recording ? CUDA_SUCCESS : CUDA_ERROR_OUT_OF_MEMORY;
}

CUresult cuStreamEndCapture(CUstream s, CUgraph *out)
{
    if (!stream_records(s)) return CUDA_ERROR_INVALID_VALUE;
    *out = s->recording;
    s->recording = NULL;
    return CUDA_SUCCESS;
}

CUresult cuGraphInstantiateWithFlags(CUgraphExec *out, CUgraph g, unsigned long long flags)
{
    (void)flags;
    struct CUgraphExec_st *e = calloc(1, sizeof *e);
    if (!e) return CUDA_ERROR_OUT_OF_MEMORY;
    e->graph.end = &e->graph.first;
    for (const struct record *r = g->first; r; r = r->next)
        if (!append(&e->graph, r)) return cuGraphExecDestroy(e), CUDA_ERROR_OUT_OF_MEMORY;
    return *out = e, CUDA_SUCCESS;
}

CUresult cuGraphDestroy(CUgraph g) { return free_records(g), free(g), CUDA_SUCCESS; }
CUresult cuGraphExecDestroy(CUgraphExec e) { return free_records(&e->graph), free(e), CUDA_SUCCESS; }

CUresult cuGraphUpload(CUgraphExec e, CUstream s) { return (void)e, (void)s, CUDA_SUCCESS; }

CUresult cuGraphLaunch(CUgraphExec e, CUstream s)
{
    CUresult status = CUDA_SUCCESS;
    (void)s;
    for (const struct record *r = e->graph.first; r && !status; r = r->next)
        status = r->kernel ? emulator_run(r->kernel, r->parameters, r->grid, r->threads, r->shared)
                           : (CUresult)r->call(r->parameters);
    return status;
}

/* A function that jit/driver.h names and that is in none of these files ends here as an undefined symbol. */
#define ADDRESS(name) (void *)name,
extern void *const emulated_functions[];
void *const emulated_functions[] = {DRIVER_FUNCTIONS(ADDRESS)};
