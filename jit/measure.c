/*
 * measure.c -- device memory, and how long launches take: for tuning and for profiles, and for nothing else.
 *
 * Launches are recorded once, as a CUDA graph, and replayed as a whole between two events, so that the
 * host's share does not count; or an event is recorded behind each of them.
 */
#include <stdlib.h>

#include "driver.h"

struct jit_clock {
    const struct driver *driver;
    CUstream stream;
    CUevent begin, end;
};

struct jit_replay {
    const struct driver *driver;
    CUgraphExec graph;
};

/* ---- Memory ---- */

size_t jit_memory_free(void)
{
    char err[JIT_ERROR_SIZE];
    size_t left = 0, all;
    const struct driver *d = driver_open(err);
    return d && !d->cuMemGetInfo_v2(&left, &all) ? left : 0;
}

coda_status jit_alloc(void **out, size_t bytes, char *err)
{
    CUdeviceptr p = 0;
    const struct driver *d = driver_open(err);
    *out = NULL;
    if (!d) return CODA_E_DEVICE;
    CUresult r = d->cuMemAlloc_v2(&p, bytes);
    *out = (void *)(uintptr_t)p;
    return r ? driver_fail(d, err, r, "cuMemAlloc") : CODA_OK;
}

void jit_free(void *p)
{
    char err[JIT_ERROR_SIZE];
    const struct driver *d = p ? driver_open(err) : NULL;
    if (d) d->cuMemFree_v2((CUdeviceptr)p);
}

/* Copies double what is there, and run on: nothing else waits for them. */
coda_status jit_fill(void *to, size_t bytes, const void *pattern, size_t period, char *err)
{
    const struct driver *d = driver_open(err);
    if (!d) return CODA_E_DEVICE;
    CUdeviceptr at = (CUdeviceptr)to;
    size_t done = bytes < period ? bytes : period;
    CUresult r = done ? d->cuMemcpyHtoD_v2(at, pattern, done) : CUDA_SUCCESS;
    while (!r && done < bytes) {
        size_t more = done < bytes - done ? done : bytes - done;
        r = d->cuMemcpyDtoD_v2(at + done, at, more);
        done += more;
    }
    if (!r) r = d->cuCtxSynchronize();
    return r ? driver_fail(d, err, r, "filling memory") : CODA_OK;
}

coda_status jit_download(void *to, const void *from, size_t bytes, char *err)
{
    const struct driver *d = driver_open(err);
    if (!d) return CODA_E_DEVICE;
    CUresult r = bytes ? d->cuMemcpyDtoH_v2(to, (CUdeviceptr)from, bytes) : CUDA_SUCCESS;
    return r ? driver_fail(d, err, r, "cuMemcpyDtoH") : CODA_OK;
}

/* ---- Time ---- */

void jit_clock_free(struct jit_clock *c)
{
    if (!c) return;
    if (c->end) c->driver->cuEventDestroy_v2(c->end);
    if (c->begin) c->driver->cuEventDestroy_v2(c->begin);
    if (c->stream) c->driver->cuStreamDestroy_v2(c->stream);
    free(c);
}

coda_status jit_clock_new(struct jit_clock **out, char *err)
{
    *out = NULL;
    const struct driver *d = driver_open(err);
    if (!d) return CODA_E_DEVICE;
    struct jit_clock *c = calloc(1, sizeof *c);
    if (!c) return jit_fail(err, CODA_E_MEMORY, "out of memory for a clock");
    c->driver = d;
    CUresult r = d->cuStreamCreate(&c->stream, CU_STREAM_NON_BLOCKING);
    if (!r) r = d->cuEventCreate(&c->begin, CU_EVENT_DEFAULT);
    if (!r) r = d->cuEventCreate(&c->end, CU_EVENT_DEFAULT);
    if (!r) return *out = c, CODA_OK;
    jit_clock_free(c);
    return driver_fail(d, err, r, "a stream and two events");
}

coda_stream jit_clock_stream(const struct jit_clock *c) { return c->stream; }

coda_status jit_clock_wait(const struct jit_clock *c, char *err)
{
    CUresult r = c->driver->cuStreamSynchronize(c->stream);
    return r ? driver_fail(c->driver, err, r, "cuStreamSynchronize") : CODA_OK;
}

coda_status jit_record_begin(const struct jit_clock *c, char *err)
{
    CUresult r = c->driver->cuStreamBeginCapture_v2(c->stream, CU_STREAM_CAPTURE_MODE_RELAXED);
    return r ? driver_fail(c->driver, err, r, "cuStreamBeginCapture") : CODA_OK;
}

coda_status jit_record_end(struct jit_replay **out, const struct jit_clock *c, char *err)
{
    const struct driver *d = c->driver;
    CUgraph graph = NULL;
    *out = NULL;
    CUresult r = d->cuStreamEndCapture(c->stream, &graph);
    struct jit_replay *p = r ? NULL : calloc(1, sizeof *p);
    if (p) r = d->cuGraphInstantiateWithFlags(&p->graph, graph, 0);
    if (graph) d->cuGraphDestroy(graph);
    if (p && !r) {
        p->driver = d;
        *out = p;
        return CODA_OK;
    }
    free(p);
    if (!r) return jit_fail(err, CODA_E_MEMORY, "out of memory for a recording");
    return driver_fail(d, err, r, "recording launches");
}

coda_status jit_replay_time(const struct jit_replay *p, const struct jit_clock *c, double *us, char *err)
{
    const struct driver *d = c->driver;
    float ms = 0;
    CUresult r = d->cuEventRecord(c->begin, c->stream);
    if (!r) r = d->cuGraphLaunch(p->graph, c->stream);
    if (!r) r = d->cuEventRecord(c->end, c->stream);
    if (!r) r = d->cuEventSynchronize(c->end);
    if (!r) r = d->cuEventElapsedTime_v2(&ms, c->begin, c->end);
    *us = 1e3 * (double)ms;
    return r ? driver_fail(d, err, r, "replaying launches") : CODA_OK;
}

void jit_replay_free(struct jit_replay *p)
{
    if (!p) return;
    p->driver->cuGraphExecDestroy(p->graph);
    free(p);
}

/* ---- One by one ---- */

struct jit_marks {
    const struct jit_clock *clock;
    int n;
    CUevent event[];
};

void jit_marks_free(struct jit_marks *m)
{
    for (int i = 0; m && i < m->n; i++) m->clock->driver->cuEventDestroy_v2(m->event[i]);
    free(m);
}

coda_status jit_marks_new(struct jit_marks **out, const struct jit_clock *c, int n, char *err)
{
    CUresult r = CUDA_SUCCESS;
    struct jit_marks *m = calloc(1, sizeof *m + (size_t)n * sizeof *m->event);
    *out = NULL;
    if (!m) return jit_fail(err, CODA_E_MEMORY, "out of memory for %d events", n);
    m->clock = c;
    while (m->n < n && !(r = c->driver->cuEventCreate(&m->event[m->n], CU_EVENT_DEFAULT))) m->n++;
    if (!r) return *out = m, CODA_OK;
    jit_marks_free(m);
    return driver_fail(c->driver, err, r, "cuEventCreate");
}

coda_status jit_mark(const struct jit_marks *m, int at, char *err)
{
    CUresult r = m->clock->driver->cuEventRecord(m->event[at], m->clock->stream);
    return r ? driver_fail(m->clock->driver, err, r, "cuEventRecord") : CODA_OK;
}

coda_status jit_marks_time(const struct jit_marks *m, int at, double *us, char *err)
{
    const struct driver *d = m->clock->driver;
    float ms = 0;
    CUresult r = d->cuEventSynchronize(m->event[at]);
    if (!r) r = d->cuEventElapsedTime_v2(&ms, m->event[at - 1], m->event[at]);
    *us = 1e3 * (double)ms;
    return r ? driver_fail(d, err, r, "timing launches") : CODA_OK;
}

coda_status jit_clock_copy(const struct jit_clock *c, void *to, const void *from, size_t bytes, char *err)
{
    CUresult r = c->driver->cuMemcpyDtoDAsync_v2((CUdeviceptr)to, (CUdeviceptr)from, bytes, c->stream);
    return r ? driver_fail(c->driver, err, r, "cuMemcpyDtoDAsync") : CODA_OK;
}

coda_status jit_stream_wait(coda_stream stream, char *err)
{
    const struct driver *d = driver_open(err);
    if (!d) return CODA_E_DEVICE;
    CUresult r = d->cuStreamSynchronize(stream);
    return r ? driver_fail(d, err, r, "cuStreamSynchronize") : CODA_OK;
}
