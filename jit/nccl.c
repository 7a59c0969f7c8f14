/*
 * nccl.c -- exchanges between ranks by NCCL: a communicator, made here or the caller's, and how it ends.
 *
 * The calls of a communicator are one thread's at a time, but for ncclCommAbort, which frees those that wait:
 * in a kernel, or on the host. So an abort waits a little for a call under way, and no longer.
 */
#include <pthread.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "driver.h"

enum {
    GROUPED = 256,  /* calls that one launch of NCCL's takes together */
    POLL_US = 50,   /* between two looks at what is under way */
    ABORT_MS = 200, /* that an abort leaves to a call of another thread */
};

_Static_assert(sizeof(ncclUniqueId) == JIT_COMM_ID, "an id has so many bytes");

struct jit_comm {
    const struct nccl *api;
    const struct driver *driver;
    ncclComm_t comm;
    bool own; /* made here */
    int ranks, device;
    pthread_mutex_t lock; /* of calls, and of what follows */
    atomic_bool dead;     /* aborted: NCCL has freed it */
    CUevent behind;       /* the last exchange that was not captured; NULL: there was none */
    double began_ms;      /* when that was given to its stream */
    bool pending;         /* nobody has seen the event happen */
};

static coda_status nccl_fail(const struct nccl *api, ncclComm_t comm, ncclResult_t r, const char *what,
                             char *err)
{
    const char *more = api->ncclGetLastError(comm), *said = api->ncclGetErrorString(r);
    bool has = more && *more;
    return jit_fail(err, CODA_E_DEVICE, "%s: %s%s%s%s", what, said ? said : "unknown error", has ? " (" : "",
                    has ? more : "", has ? ")" : "");
}

/* ---- Made, adopted ---- */

coda_status jit_comm_id(void *id, char *err)
{
    ncclUniqueId made;
    const struct nccl *api = nccl_open(err);
    if (!api) return CODA_E_DEVICE;
    ncclResult_t r = api->ncclGetUniqueId(&made);
    if (r) return nccl_fail(api, NULL, r, "ncclGetUniqueId", err);
    memcpy(id, &made, sizeof made);
    return CODA_OK;
}

static struct jit_comm *comm_new(const struct nccl *api, const struct driver *driver)
{
    struct jit_comm *c = calloc(1, sizeof *c);
    if (!c) return NULL;
    c->api = api, c->driver = driver;
    pthread_mutex_init(&c->lock, NULL);
    return c;
}

static void comm_delete(struct jit_comm *c)
{
    pthread_mutex_destroy(&c->lock);
    free(c);
}

static coda_status open_both(const struct nccl **api, const struct driver **driver, char *err)
{
    return (*driver = driver_open(err)) && (*api = nccl_open(err)) ? CODA_OK : CODA_E_DEVICE;
}

coda_status jit_comm_new(struct jit_comm **out, int rank, int ranks, const void *id, char *err)
{
    const struct nccl *api;
    const struct driver *driver;
    ncclUniqueId of;
    *out = NULL;
    coda_status status = open_both(&api, &driver, err);
    struct jit_comm *c = status ? NULL : comm_new(api, driver);
    if (status) return status;
    if (!c) return jit_fail(err, CODA_E_MEMORY, "out of memory for a communicator");
    memcpy(&of, id, sizeof of);
    c->own = true, c->ranks = ranks;
    ncclResult_t r = api->ncclCommInitRank(&c->comm, ranks, of, rank);
    if (!r && (r = api->ncclCommCuDevice(c->comm, &c->device))) api->ncclCommAbort(c->comm);
    if (!r) return *out = c, CODA_OK;
    comm_delete(c);
    return nccl_fail(api, NULL, r, "ncclCommInitRank", err);
}

coda_status jit_comm_adopt(struct jit_comm **out, void *comm, int *rank, int *ranks, char *err)
{
    const struct nccl *api;
    const struct driver *driver;
    *out = NULL;
    coda_status status = open_both(&api, &driver, err);
    struct jit_comm *c = status ? NULL : comm_new(api, driver);
    if (status) return status;
    if (!c) return jit_fail(err, CODA_E_MEMORY, "out of memory for a communicator");
    c->comm = comm;
    ncclResult_t r = api->ncclCommCount(comm, ranks);
    if (!r) r = api->ncclCommUserRank(comm, rank);
    if (!r) r = api->ncclCommCuDevice(comm, &c->device);
    c->ranks = *ranks;
    if (!r) return *out = c, CODA_OK;
    comm_delete(c);
    return nccl_fail(api, NULL, r, "the communicator", err);
}

int jit_comm_device(const struct jit_comm *c) { return c->device; }

/* ---- The end ---- */

void jit_comm_abort(struct jit_comm *c)
{
    struct timespec until;
    clock_gettime(CLOCK_REALTIME, &until);
    until.tv_nsec += ABORT_MS * 1000000L;
    if (until.tv_nsec >= 1000000000L) until.tv_sec++, until.tv_nsec -= 1000000000L;
    bool locked = !pthread_mutex_timedlock(&c->lock, &until);
    if (!atomic_exchange(&c->dead, true)) c->api->ncclCommAbort(c->comm);
    if (locked) pthread_mutex_unlock(&c->lock);
}

void jit_comm_free(struct jit_comm *c)
{
    if (!c) return;
    if (c->own && !atomic_load(&c->dead)) c->api->ncclCommDestroy(c->comm);
    if (c->behind) c->driver->cuEventDestroy_v2(c->behind);
    comm_delete(c);
}

/* ---- What is under way: the lock is held ---- */

/* A communicator that does not block says later what a call came to. */
static ncclResult_t settle(const struct jit_comm *c, ncclResult_t r)
{
    ncclResult_t later = r;
    while (later == ncclInProgress && !atomic_load(&c->dead)) {
        usleep(POLL_US);
        if ((r = c->api->ncclCommGetAsyncError(c->comm, &later))) return r;
    }
    return later;
}

static coda_status failed_since(const struct jit_comm *c, char *err)
{
    ncclResult_t happened = ncclSuccess;
    if (atomic_load(&c->dead)) return jit_fail(err, CODA_E_DEVICE, "its communicator was aborted");
    ncclResult_t r = c->api->ncclCommGetAsyncError(c->comm, &happened);
    if (!r && (happened == ncclSuccess || happened == ncclInProgress)) return CODA_OK;
    return nccl_fail(c->api, c->comm, r ? r : happened, "since its last exchange", err);
}

static coda_status late(const struct jit_comm *c, int timeout_ms, char *err)
{
    double ms = jit_milliseconds() - c->began_ms;
    if (!timeout_ms || ms < timeout_ms) return CODA_OK;
    return jit_fail(err, CODA_E_DEVICE, "its last exchange has not ended for %lld ms; %d are allowed",
                    (long long)ms, timeout_ms);
}

/* While another thread makes a call there is nothing to say. */
coda_status jit_comm_status(struct jit_comm *c, int timeout_ms, char *err)
{
    if (pthread_mutex_trylock(&c->lock)) return CODA_OK;
    coda_status status = failed_since(c, err);
    if (!status && c->pending && c->driver->cuEventQuery(c->behind) == CUDA_ERROR_NOT_READY)
        status = late(c, timeout_ms, err);
    else c->pending = false;
    pthread_mutex_unlock(&c->lock);
    return status;
}

/* ---- Exchanges ---- */

static ncclDataType_t nccl_type(coda_dtype t)
{
    return t == CODA_BF16 ? ncclBfloat16 : t == CODA_F16 ? ncclFloat16 : ncclFloat32;
}

static ncclResult_t call_one(const struct jit_comm *c, const struct jit_exchange *x, const char *from,
                             char *to, CUstream stream)
{
    size_t n = (size_t)x->elements;
    ncclDataType_t type = nccl_type(x->dtype);
    switch (x->kind) {
    case JIT_ALL_REDUCE: return c->api->ncclAllReduce(from, to, n, type, ncclSum, c->comm, stream);
    case JIT_REDUCE_SCATTER: return c->api->ncclReduceScatter(from, to, n, type, ncclSum, c->comm, stream);
    case JIT_ALL_GATHER: return c->api->ncclAllGather(from, to, (size_t)x->bytes, ncclInt8, c->comm, stream);
    }
    return ncclInvalidArgument;
}

/* Runs `first` to `last` - 1, which NCCL launches together. */
static ncclResult_t call_some(const struct jit_comm *c, const struct jit_exchange *x, int64_t first,
                              int64_t last, const char *from, char *to, CUstream stream)
{
    int64_t in = x->kind == JIT_REDUCE_SCATTER ? x->bytes * c->ranks : x->bytes;
    int64_t out = x->kind == JIT_ALL_GATHER ? x->bytes * c->ranks : x->bytes;
    ncclResult_t r = c->api->ncclGroupStart(), ended;
    if (r) return r;
    for (int64_t i = first; i < last && (!r || r == ncclInProgress); i++)
        r = call_one(c, x, from + i * in, to + i * out, stream);
    ended = c->api->ncclGroupEnd();
    return r && r != ncclInProgress ? r : ended;
}

static ncclResult_t call_all(const struct jit_comm *c, const struct jit_exchange *x, const char *from,
                             char *to, CUstream stream)
{
    ncclResult_t r = ncclSuccess;
    if (x->runs == 1) return settle(c, call_one(c, x, from, to, stream));
    for (int64_t i = 0; i < x->runs && !r; i += GROUPED) {
        int64_t last = i + GROUPED < x->runs ? i + GROUPED : x->runs;
        r = settle(c, call_some(c, x, i, last, from, to, stream));
    }
    return r;
}

/* Records an event that tells whether the exchange has ended; a captured one happens when its graph does. */
static void mark(struct jit_comm *c, CUstream stream)
{
    if (jit_is_captured(stream)) return;
    if (!c->behind && c->driver->cuEventCreate(&c->behind, CU_EVENT_DEFAULT)) c->behind = NULL;
    c->pending = c->behind && !c->driver->cuEventRecord(c->behind, stream);
    c->began_ms = jit_milliseconds();
}

coda_status jit_comm_run(struct jit_comm *c, const struct jit_exchange *x, const void *from, void *to,
                         coda_stream stream, char *err)
{
    static const char *const name[] = {"ncclAllReduce", "ncclReduceScatter", "ncclAllGather"};
    ncclResult_t r = ncclSuccess;
    pthread_mutex_lock(&c->lock);
    coda_status status = failed_since(c, err);
    if (!status) r = call_all(c, x, from, to, stream);
    if (atomic_load(&c->dead)) status = jit_fail(err, CODA_E_DEVICE, "its communicator was aborted");
    else if (r) status = nccl_fail(c->api, c->comm, r, name[x->kind], err);
    else if (!status) mark(c, stream);
    pthread_mutex_unlock(&c->lock);
    return status;
}

/* ---- What each rank says, to all of them ---- */

static coda_status wait_for(struct jit_comm *c, int timeout_ms, char *err)
{
    coda_status status = CODA_OK;
    CUresult r;
    while (!status && (r = c->driver->cuEventQuery(c->behind)) == CUDA_ERROR_NOT_READY) {
        usleep(POLL_US);
        status = jit_comm_status(c, timeout_ms, err);
    }
    return status || !r ? status : driver_fail(c->driver, err, r, "cuEventQuery");
}

/* In memory and on a stream of its own. */
static coda_status gather(struct jit_comm *c, const void *mine, size_t bytes, void *all, char *memory,
                          int timeout_ms, char *err)
{
    const struct driver *d = c->driver;
    struct jit_exchange x = {.kind = JIT_ALL_GATHER, .runs = 1, .bytes = (int64_t)bytes};
    CUstream stream;
    CUresult r = d->cuStreamCreate(&stream, CU_STREAM_NON_BLOCKING);
    if (r) return driver_fail(d, err, r, "cuStreamCreate");
    r = d->cuMemcpyHtoD_v2((CUdeviceptr)memory, mine, bytes);
    if (!r) r = d->cuStreamSynchronize(NULL); /* for the copy, which other streams do not wait for */
    coda_status status = r ? driver_fail(d, err, r, "cuMemcpyHtoD") : CODA_OK;
    if (!status) status = jit_comm_run(c, &x, memory, memory + bytes, stream, err);
    if (!status) status = wait_for(c, timeout_ms, err);
    if (status) jit_comm_abort(c);
    else if ((r = d->cuMemcpyDtoH_v2(all, (CUdeviceptr)(memory + bytes), bytes * (size_t)c->ranks)))
        status = driver_fail(d, err, r, "cuMemcpyDtoH");
    d->cuStreamDestroy_v2(stream);
    return status;
}

coda_status jit_comm_gather(struct jit_comm *c, const void *mine, size_t bytes, void *all, int timeout_ms,
                            char *err)
{
    void *memory;
    coda_status status = jit_alloc(&memory, bytes * (size_t)(c->ranks + 1), err);
    if (status) return status;
    status = gather(c, mine, bytes, all, memory, timeout_ms, err);
    jit_free(memory);
    return status;
}
