/*
 * stream.c -- streams, which run at once; events; graphs, whose launches wait for those ahead of them in
 * their stream, and for those ahead of the events that it has waited for. A graph runs in any order that
 * heeds this, another one each time: what nobody waits for comes early, or late.
 */
#include "driver_inside.h"
#include "driver.h"

#include <stdlib.h>
#include <string.h>
#include <time.h>

enum { MOST_AHEAD = 16, MOST_STREAMS = 8 };

/* Launches, by their numbers: a few, behind which all others of interest are. */
struct front {
    int number[MOST_AHEAD], count;
};
struct record {
    struct record *next;
    int number; /* in the graph */
    int stream; /* of those that record into it */
    struct front ahead;
    bool done;
    const struct emulated_kernel *kernel; /* NULL: a call */
    struct emulated_launch launch;
    void *parameters;
    size_t bytes; /* of them */
    int (*call)(void *parameters);
};
struct CUgraph_st {
    struct record *first, **end;
    int records;
    CUstream stream[MOST_STREAMS]; /* that record into it, the first of which began */
    int streams;
};
struct CUgraphExec_st {
    struct CUgraph_st graph;
};
struct CUstream_st {
    struct CUgraph_st *recording;
    struct front front;
    bool stuck; /* what was recorded behind it never happens */
    bool apart; /* CU_STREAM_NON_BLOCKING */
    int context;
};
struct CUevent_st {
    double ms;
    int context;
    CUstream stream;
    struct CUgraph_st *recorded; /* in which capture; NULL: in none */
    struct front front;
};

/* Of each context: streams that wait for its default one, and record. */
static int barring[MOST_CONTEXTS];

/* ---- Streams and events ---- */

bool stream_is_default(CUstream s) { return (uintptr_t)s <= 2; }
bool stream_is_barred(CUstream s)
{
    int context = stream_context(s);
    return stream_is_default(s) && context >= 0 && __atomic_load_n(&barring[context], __ATOMIC_RELAXED);
}

CUresult cuStreamCreate(CUstream *out, unsigned flags)
{
    if (current_context() < 0) return CUDA_ERROR_INVALID_CONTEXT;
    *out = calloc(1, sizeof **out);
    if (*out) (*out)->apart = flags & CU_STREAM_NON_BLOCKING, (*out)->context = current_context();
    return *out ? CUDA_SUCCESS : CUDA_ERROR_OUT_OF_MEMORY;
}
CUresult cuStreamCreateWithPriority(CUstream *out, unsigned flags, int priority)
{
    return (void)priority, cuStreamCreate(out, flags);
}
CUresult cuStreamDestroy_v2(CUstream s) { return free(s), CUDA_SUCCESS; }
CUresult cuStreamSynchronize(CUstream s) { return stream_wait_default(s), CUDA_SUCCESS; }
void stream_wait_default(CUstream s)
{
    if (stream_is_default(s) || !s->apart) transfers_finish();
}

CUresult cuEventCreate(CUevent *out, unsigned flags)
{
    (void)flags;
    if (current_context() < 0) return CUDA_ERROR_INVALID_CONTEXT;
    *out = calloc(1, sizeof **out);
    if (*out) (*out)->context = current_context();
    return *out ? CUDA_SUCCESS : CUDA_ERROR_OUT_OF_MEMORY;
}
CUresult cuEventDestroy_v2(CUevent e) { return free(e), CUDA_SUCCESS; }
CUresult cuEventSynchronize(CUevent e) { return stream_wait_default(e->stream), CUDA_SUCCESS; }

CUresult cuEventRecord(CUevent e, CUstream s)
{
    struct timespec t;
    if (stream_context(s) < 0) return CUDA_ERROR_INVALID_CONTEXT;
    if (e->context != stream_context(s)) return CUDA_ERROR_INVALID_HANDLE;
    e->stream = s;
    e->recorded = stream_records(s) ? s->recording : NULL;
    if (e->recorded) e->front = s->front;
    clock_gettime(CLOCK_MONOTONIC, &t);
    e->ms = 1e3 * (double)t.tv_sec + 1e-6 * (double)t.tv_nsec;
    return CUDA_SUCCESS;
}
/* A stream that waits for one that records begins to record, too. */
CUresult cuStreamWaitEvent(CUstream s, CUevent e, unsigned flags)
{
    struct CUgraph_st *g = e->recorded;
    if (flags) return CUDA_ERROR_INVALID_VALUE;
    if (!g && stream_records(s)) return CUDA_ERROR_STREAM_CAPTURE_ISOLATION;
    if (!g) return stream_wait_default(e->stream), CUDA_SUCCESS;
    if (stream_is_default(s)) return CUDA_ERROR_STREAM_CAPTURE_IMPLICIT;
    if (s->recording && s->recording != g) return CUDA_ERROR_STREAM_CAPTURE_MERGE;
    if (!s->recording && g->streams == MOST_STREAMS) return CUDA_ERROR_OUT_OF_MEMORY;
    if (!s->recording) s->recording = g, s->front.count = 0, g->stream[g->streams++] = s;
    for (int i = 0; i < e->front.count; i++) {
        if (s->front.count == MOST_AHEAD) return CUDA_ERROR_OUT_OF_MEMORY;
        s->front.number[s->front.count++] = e->front.number[i];
    }
    return CUDA_SUCCESS;
}
CUresult cuEventQuery(CUevent e)
{
    return !stream_is_default(e->stream) && e->stream->stuck ? CUDA_ERROR_NOT_READY : CUDA_SUCCESS;
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
    r->number = g->records++;
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

bool stream_records(CUstream s) { return !stream_is_default(s) && s->recording; }
int stream_context(CUstream s) { return stream_is_default(s) ? current_context() : s->context; }

/* Behind what the stream has. */
static CUresult record(CUstream s, struct record *r)
{
    r->ahead = s->front;
    while (s->recording->stream[r->stream] != s) r->stream++;
    if (!append(s->recording, r)) return CUDA_ERROR_OUT_OF_MEMORY;
    s->front = (struct front){.number = {s->recording->records - 1}, .count = 1};
    return CUDA_SUCCESS;
}

CUresult stream_record(CUstream s, const struct emulated_kernel *k, const void *parameters,
                       struct emulated_launch l)
{
    struct record r = {
        .kernel = k, .launch = l, .parameters = (void *)(uintptr_t)parameters, .bytes = k->entry->parameters};
    return record(s, &r);
}

int emu_stream_call(void *stream, int (*call)(void *), void *parameters, size_t bytes)
{
    struct record r = {.call = call, .parameters = parameters, .bytes = bytes};
    if (!stream_records(stream)) return call(parameters);
    return record(stream, &r);
}

void emu_stream_stick(void *stream, int stuck)
{
    if (!stream_is_default(stream)) ((CUstream)stream)->stuck = stuck;
}

CUresult cuStreamIsCapturing(CUstream s, CUstreamCaptureStatus *out)
{
    if (stream_context(s) < 0) return CUDA_ERROR_INVALID_CONTEXT;
    if (stream_is_barred(s)) return CUDA_ERROR_STREAM_CAPTURE_IMPLICIT;
    *out = stream_records(s) ? CU_STREAM_CAPTURE_STATUS_ACTIVE : CU_STREAM_CAPTURE_STATUS_NONE;
    return CUDA_SUCCESS;
}

CUresult cuThreadExchangeStreamCaptureMode(CUstreamCaptureMode *mode) { return (void)mode, CUDA_SUCCESS; }

CUresult cuStreamBeginCapture_v2(CUstream s, CUstreamCaptureMode mode)
{
    (void)mode;
    if (stream_is_default(s) || s->recording) return CUDA_ERROR_INVALID_VALUE;
    if (!(s->recording = new_graph())) return CUDA_ERROR_OUT_OF_MEMORY;
    s->recording->stream[s->recording->streams++] = s;
    __atomic_add_fetch(&barring[s->context], !s->apart, __ATOMIC_RELAXED);
    s->front.count = 0;
    return CUDA_SUCCESS;
}

/* Does the stream that began come behind all that the others have recorded? */
static bool is_joined(const struct CUgraph_st *g)
{
    bool *behind = calloc((size_t)g->records + 1, sizeof *behind), all = behind;
    const struct front *end = &g->stream[0]->front;
    for (int i = 0; behind && i < end->count; i++) behind[end->number[i]] = true;
    for (int n = g->records - 1; all && n >= 0; n--) {
        const struct record *r = g->first;
        while (r->number != n) r = r->next;
        all = behind[n];
        for (int i = 0; i < r->ahead.count; i++) behind[r->ahead.number[i]] = true;
    }
    free(behind);
    return all;
}

CUresult cuStreamEndCapture(CUstream s, CUgraph *out)
{
    if (!stream_records(s)) return CUDA_ERROR_INVALID_VALUE;
    struct CUgraph_st *g = s->recording;
    if (g->stream[0] != s) return CUDA_ERROR_STREAM_CAPTURE_UNMATCHED;
    bool joined = is_joined(g);
    __atomic_sub_fetch(&barring[s->context], !s->apart, __ATOMIC_RELAXED);
    for (int i = 0; i < g->streams; i++) g->stream[i]->recording = NULL;
    *out = joined ? g : NULL;
    if (!joined) cuGraphDestroy(g);
    return joined ? CUDA_SUCCESS : CUDA_ERROR_STREAM_CAPTURE_UNJOINED;
}

CUresult cuGraphInstantiateWithFlags(CUgraphExec *out, CUgraph g, unsigned long long flags)
{
    (void)flags;
    struct CUgraphExec_st *e = calloc(1, sizeof *e);
    if (!e) return CUDA_ERROR_OUT_OF_MEMORY;
    e->graph.end = &e->graph.first, e->graph.streams = g->streams;
    for (const struct record *r = g->first; r; r = r->next)
        if (!append(&e->graph, r)) return cuGraphExecDestroy(e), CUDA_ERROR_OUT_OF_MEMORY;
    return *out = e, CUDA_SUCCESS;
}

CUresult cuGraphDestroy(CUgraph g) { return free_records(g), free(g), CUDA_SUCCESS; }
CUresult cuGraphExecDestroy(CUgraphExec e) { return free_records(&e->graph), free(e), CUDA_SUCCESS; }

CUresult cuGraphUpload(CUgraphExec e, CUstream s) { return (void)e, (void)s, CUDA_SUCCESS; }

/* All before `first` are done. */
static bool is_ready(const struct record *first, const struct record *r)
{
    for (const struct record *o = first; o != r; o = o->next)
        for (int i = 0; !o->done && i < r->ahead.count; i++)
            if (r->ahead.number[i] == o->number) return false;
    return true;
}

/* Of the first few that are not done, one that waits for nobody; of this stream, if it has one. */
static struct record *next_of(const struct CUgraph_st *g, int stream, uint64_t *random)
{
    enum { FEW = 16 };
    struct record *ready[FEW], *first = g->first;
    int n = 0, seen = 0;
    while (first->done) first = first->next;
    for (struct record *r = first; r && seen < FEW; r = r->next) {
        if (r->done) continue;
        seen++;
        if (!is_ready(first, r)) continue;
        if (r->stream == stream) return r;
        ready[n++] = r;
    }
    *random = *random * 6364136223846793005u + 1442695040888963407u;
    return ready[(*random >> 33) % (uint64_t)n];
}

CUresult cuGraphLaunch(CUgraphExec e, CUstream s)
{
    static uint64_t launches;
    const char *seed = getenv("CODA_SEED");
    uint64_t random =
        (seed ? strtoull(seed, NULL, 0) : 1) + 77 * __atomic_add_fetch(&launches, 1, __ATOMIC_RELAXED);
    CUresult status = CUDA_SUCCESS;
    /* Mostly one stream goes ahead as far as it can; one that no launch is of goes by chance. */
    int ahead = (int)((random * 0x9e3779b97f4a7c15u) >> 33) % (e->graph.streams + 1);
    stream_wait_default(s);
    for (struct record *r = e->graph.first; r; r = r->next) r->done = false;
    for (int i = 0; i < e->graph.records && !status; i++) {
        struct record *r = next_of(&e->graph, ahead, &random);
        status =
            r->kernel ? emulator_run(r->kernel, r->parameters, r->launch) : (CUresult)r->call(r->parameters);
        r->done = true;
    }
    return status;
}

/* A function that jit/driver.h names and that is in none of these files ends here as an undefined symbol. */
#define ADDRESS(name) (void *)name,
extern void *const emulated_functions[];
void *const emulated_functions[] = {DRIVER_FUNCTIONS(ADDRESS)};
