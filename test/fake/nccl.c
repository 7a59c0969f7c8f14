/*
 * nccl.c -- NCCL for threads of a process or processes of a host, over the emulator's memory: whoever calls
 * waits for the others on the host, as NCCL's kernels do on the device. What ranks bring goes through a file
 * in memory, whose name their id has, and which is large enough for tests.
 *
 * Sums are made in the order of ranks and rounded after each addition, as NCCL may; what all ranks get is
 * equal. Ranks that bring other operations or other counts all fail, where NCCL would hang or add what is
 * there. $FAKE_NCCL says what goes wrong:
 *     old     its version is 2.10
 *     init    rank 1 cannot make its communicator, and the others learn of it
 *     device  all say that they are of the device behind their own
 *     call    rank 1's exchanges fail
 *     async   something has gone wrong since
 *     hang    exchanges never end, until their communicator is aborted
 */
#include "nccl_abi.h"

#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

int fake_nccl_live(void); /* communicators that were neither destroyed nor aborted */

enum { MOST_RANKS = 16, MOST_GROUPED = 4096, MOST_BYTES = 16 << 20, POLL_US = 100 };

enum operation { ALL_REDUCE, REDUCE_SCATTER, ALL_GATHER };

struct call {
    enum operation operation;
    const void *from;
    void *to;
    size_t count;
    ncclDataType_t type;
    ncclComm_t comm;
    CUstream stream;
};

/* Ranks that can meet: what their processes share. Its lock outlives those that are killed. */
struct world {
    pthread_mutex_t lock;
    int ranks, here, came, failed;
    uint64_t meetings;
    bool differ;
    struct call call[MOST_RANKS];
    char brought[MOST_RANKS][MOST_BYTES]; /* pages that nobody writes take no memory */
};

struct ncclComm {
    struct ncclComm *next;
    struct world *world;
    int rank, device;
    bool aborted, gone;
    CUstream stuck;
};

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER; /* of what follows; a world's is taken behind it */
static struct ncclComm *comms; /* all that ever were, so that a late call of one is found out */
static _Thread_local char message[200];

static bool told_to(const char *what)
{
    const char *s = getenv("FAKE_NCCL");
    return s && !strcmp(s, what);
}

int fake_nccl_live(void)
{
    int n = 0;
    pthread_mutex_lock(&lock);
    for (struct ncclComm *c = comms; c; c = c->next) n += !c->gone;
    pthread_mutex_unlock(&lock);
    return n;
}

/* ---- What it says ---- */

ncclResult_t ncclGetVersion(int *version) { return *version = told_to("old") ? 21003 : 22809, ncclSuccess; }

const char *ncclGetErrorString(ncclResult_t r)
{
    return r == ncclSuccess              ? "no error"
           : r == ncclUnhandledCudaError ? "unhandled cuda error"
           : r == ncclSystemError        ? "unhandled system error"
           : r == ncclInvalidArgument    ? "invalid argument"
           : r == ncclInvalidUsage       ? "invalid usage"
           : r == ncclRemoteError        ? "remote process exited or there was a network error"
                                         : "internal error";
}

const char *ncclGetLastError(ncclComm_t comm) { return (void)comm, message; }

static ncclResult_t complain(ncclResult_t r, const char *what)
{
    snprintf(message, sizeof message, "%s", what);
    return r;
}

/* ---- Communicators ---- */

static void file_of(char *path, size_t size, const ncclUniqueId *id)
{
    snprintf(path, size, "/dev/shm/coda-fake-nccl-%.40s", id->internal);
}

static struct world *map_world(const ncclUniqueId *id, int flags)
{
    char path[100];
    file_of(path, sizeof path, id);
    int file = open(path, O_RDWR | O_CLOEXEC | flags, 0600);
    bool good = file >= 0 && (!flags || !ftruncate(file, sizeof(struct world)));
    struct world *w = good ? mmap(NULL, sizeof *w, PROT_READ | PROT_WRITE, MAP_SHARED, file, 0) : MAP_FAILED;
    if (file >= 0) close(file);
    return w == MAP_FAILED ? NULL : w;
}

ncclResult_t ncclGetUniqueId(ncclUniqueId *id)
{
    static int made;
    pthread_mutexattr_t shared;
    memset(id, 0, sizeof *id);
    snprintf(id->internal, sizeof id->internal, "%d-%d", (int)getpid(),
             __atomic_add_fetch(&made, 1, __ATOMIC_RELAXED));
    struct world *w = map_world(id, O_CREAT | O_TRUNC);
    if (!w) return complain(ncclSystemError, "no memory that processes share");
    pthread_mutexattr_init(&shared);
    pthread_mutexattr_setpshared(&shared, PTHREAD_PROCESS_SHARED);
    pthread_mutexattr_setrobust(&shared, PTHREAD_MUTEX_ROBUST);
    pthread_mutex_init(&w->lock, &shared);
    munmap(w, sizeof *w);
    return ncclSuccess;
}

static void lock_world(struct world *w)
{
    if (pthread_mutex_lock(&w->lock) == EOWNERDEAD) pthread_mutex_consistent(&w->lock);
}
/* Others may go on. */
static void wait_in_world(struct world *w)
{
    pthread_mutex_unlock(&w->lock);
    usleep(POLL_US);
    lock_world(w);
}

/* The emulator's; 0 without one. */
static int current_device(void)
{
    CUresult (*get)(CUdevice *) = (CUresult(*)(CUdevice *))dlsym(RTLD_DEFAULT, "cuCtxGetDevice");
    CUdevice d = 0;
    return get && !get(&d) ? d : 0;
}

/* Returns when all ranks have come, or one has failed. */
static bool enter(struct world *w, const ncclUniqueId *id, int ranks, int rank)
{
    char path[100];
    if (!w || ranks > MOST_RANKS || rank < 0 || rank >= ranks) return false;
    lock_world(w);
    w->ranks = ranks;
    w->failed |= told_to("init") && rank == 1;
    file_of(path, sizeof path, id);
    if (++w->came == ranks) unlink(path);
    while (w->came < ranks && !w->failed) wait_in_world(w);
    bool good = !w->failed;
    pthread_mutex_unlock(&w->lock);
    return good;
}

ncclResult_t ncclCommInitRank(ncclComm_t *out, int ranks, ncclUniqueId id, int rank)
{
    struct ncclComm *c = calloc(1, sizeof *c);
    *out = NULL;
    if (!c) return ncclSystemError;
    struct world *w = map_world(&id, 0);
    bool good = enter(w, &id, ranks, rank);
    pthread_mutex_lock(&lock);
    *c =
        (struct ncclComm){.next = comms, .world = w, .rank = rank, .device = current_device(), .gone = !good};
    comms = c;
    pthread_mutex_unlock(&lock);
    if (good) return *out = c, ncclSuccess;
    return rank == 1 ? complain(ncclSystemError, "told to fail")
                     : complain(ncclRemoteError, "rank 1 has failed");
}

/* Is it one of ours, that is still there? The lock is held. */
static bool is_comm(const struct ncclComm *comm)
{
    const struct ncclComm *c = comms;
    while (c && c != comm) c = c->next;
    return c && !c->gone;
}

static ncclResult_t end(ncclComm_t comm, bool aborts)
{
    pthread_mutex_lock(&lock);
    bool good = is_comm(comm);
    if (good) comm->gone = true;
    if (good) __atomic_store_n(&comm->aborted, aborts, __ATOMIC_SEQ_CST);
    void (*stick)(void *, int) = (void (*)(void *, int))dlsym(RTLD_DEFAULT, "emu_stream_stick");
    if (good && comm->stuck && stick) stick(comm->stuck, 0);
    pthread_mutex_unlock(&lock);
    return good ? ncclSuccess : complain(ncclInvalidArgument, "no communicator");
}

ncclResult_t ncclCommDestroy(ncclComm_t comm) { return end(comm, false); }
ncclResult_t ncclCommAbort(ncclComm_t comm) { return end(comm, true); }

/* *out of a communicator that is there. */
static ncclResult_t ask(const ncclComm_t comm, int *out, bool rank)
{
    pthread_mutex_lock(&lock);
    bool good = is_comm(comm);
    if (good) *out = rank ? comm->rank : comm->world->ranks;
    pthread_mutex_unlock(&lock);
    return good ? ncclSuccess : complain(ncclInvalidArgument, "no communicator");
}

ncclResult_t ncclCommCount(const ncclComm_t comm, int *out) { return ask(comm, out, false); }
ncclResult_t ncclCommUserRank(const ncclComm_t comm, int *out) { return ask(comm, out, true); }
ncclResult_t ncclCommCuDevice(const ncclComm_t comm, int *out)
{
    ncclResult_t r = ask(comm, out, true);
    *out = (r ? 0 : comm->device) + told_to("device");
    return r;
}

ncclResult_t ncclCommGetAsyncError(ncclComm_t comm, ncclResult_t *out)
{
    int rank;
    *out = told_to("async") ? complain(ncclRemoteError, "a peer is gone") : ncclSuccess;
    return ask(comm, &rank, true);
}

/* ---- Numbers ---- */

static size_t bytes_of(ncclDataType_t t) { return t == ncclFloat32 ? 4 : t == ncclInt8 ? 1 : 2; }

static float load(ncclDataType_t t, const void *x, size_t i)
{
    float f;
    uint32_t bits;
    if (t == ncclFloat16) return (float)((const _Float16 *)x)[i];
    if (t == ncclFloat32) return ((const float *)x)[i];
    bits = (uint32_t)((const uint16_t *)x)[i] << 16;
    memcpy(&f, &bits, sizeof f);
    return f;
}

/* To nearest, ties to even; NaNs are not drawn. */
static void store(ncclDataType_t t, void *x, size_t i, float f)
{
    uint32_t bits;
    if (t == ncclFloat16) ((_Float16 *)x)[i] = (_Float16)f;
    if (t == ncclFloat32) ((float *)x)[i] = f;
    if (t != ncclBfloat16) return;
    memcpy(&bits, &f, sizeof bits);
    ((uint16_t *)x)[i] = (uint16_t)((bits + 0x7fff + (bits >> 16 & 1)) >> 16);
}

static void add(const struct world *w, size_t from, const struct call *mine, void *to)
{
    for (size_t i = 0; i < mine->count; i++) {
        store(mine->type, to, i, load(mine->type, w->brought[0], from + i));
        for (int r = 1; r < w->ranks; r++)
            store(mine->type, to, i, load(mine->type, to, i) + load(mine->type, w->brought[r], from + i));
    }
}

/* ---- Exchanges ---- */

static bool equal(const struct call *a, const struct call *b)
{
    return a->operation == b->operation && a->count == b->count && a->type == b->type;
}

/* All wait for all; false: this communicator was aborted. The world's lock is held. */
static bool barrier(const struct ncclComm *c)
{
    struct world *w = c->world;
    uint64_t before = w->meetings;
    if (++w->here == w->ranks) {
        w->here = 0, w->meetings++;
        for (int r = 1; r < w->ranks; r++) w->differ = w->differ || !equal(&w->call[0], &w->call[r]);
    }
    while (w->meetings == before && !__atomic_load_n(&c->aborted, __ATOMIC_SEQ_CST)) wait_in_world(w);
    return w->meetings != before;
}

static void compute(const struct call *mine, const struct world *w, void *to)
{
    size_t bytes = mine->count * bytes_of(mine->type);
    int rank = mine->comm->rank;
    if (mine->operation != ALL_GATHER) {
        add(w, mine->operation == ALL_REDUCE ? 0 : (size_t)rank * mine->count, mine, to);
        return;
    }
    for (int r = 0; r < w->ranks; r++) memcpy((char *)to + (size_t)r * bytes, w->brought[r], bytes);
}

/* The result takes its place when all have read. */
static int run(void *parameters)
{
    const struct call *mine = parameters;
    struct world *w = mine->comm->world;
    size_t bytes = mine->count * bytes_of(mine->type), ranks = (size_t)w->ranks;
    size_t in = mine->operation == REDUCE_SCATTER ? bytes * ranks : bytes;
    size_t out = mine->operation == ALL_GATHER ? bytes * ranks : bytes;
    void *to = malloc(out + 1);
    bool good = to && in <= MOST_BYTES && !__atomic_load_n(&mine->comm->aborted, __ATOMIC_SEQ_CST);
    lock_world(w);
    w->call[mine->comm->rank] = *mine;
    if (good) memcpy(w->brought[mine->comm->rank], mine->from, in);
    good = good && barrier(mine->comm) && !w->differ;
    if (good) compute(mine, w, to);
    good = good && barrier(mine->comm);
    pthread_mutex_unlock(&w->lock);
    if (good) memcpy(mine->to, to, out);
    free(to);
    return good ? CUDA_SUCCESS : CUDA_ERROR_LAUNCH_FAILED;
}

static ncclResult_t begin(struct call *c)
{
    int (*call)(void *, int (*)(void *), void *, size_t) =
        (int (*)(void *, int (*)(void *), void *, size_t))dlsym(RTLD_DEFAULT, "emu_stream_call");
    void (*stick)(void *, int) = (void (*)(void *, int))dlsym(RTLD_DEFAULT, "emu_stream_stick");
    pthread_mutex_lock(&lock);
    bool good = is_comm(c->comm);
    if (good && told_to("hang")) c->comm->stuck = c->stream;
    pthread_mutex_unlock(&lock);
    if (!good || !call || !stick) return complain(ncclInvalidArgument, "no communicator");
    if (told_to("call") && c->comm->rank == 1) return complain(ncclUnhandledCudaError, "told to fail");
    if (told_to("hang")) return stick(c->stream, 1), ncclSuccess;
    if (!call(c->stream, run, c, sizeof *c)) return ncclSuccess;
    return complain(ncclInvalidUsage, c->comm->world->differ ? "ranks differ" : "aborted");
}

static _Thread_local struct call *grouped;
static _Thread_local int groups, calls;

ncclResult_t ncclGroupStart(void)
{
    if (!groups && !(grouped = malloc(MOST_GROUPED * sizeof *grouped))) return ncclSystemError;
    return groups++, ncclSuccess;
}

ncclResult_t ncclGroupEnd(void)
{
    ncclResult_t r = ncclSuccess;
    if (!groups) return complain(ncclInvalidUsage, "no group was started");
    if (--groups) return ncclSuccess;
    for (int i = 0; i < calls && !r; i++) r = begin(&grouped[i]);
    free(grouped);
    return calls = 0, r;
}

static ncclResult_t take(struct call c)
{
    if (!groups) return begin(&c);
    if (calls == MOST_GROUPED) return complain(ncclInvalidUsage, "too many calls in a group");
    return grouped[calls++] = c, ncclSuccess;
}

ncclResult_t ncclAllReduce(const void *from, void *to, size_t n, ncclDataType_t t, ncclRedOp_t op,
                           ncclComm_t comm, CUstream stream)
{
    if (op != ncclSum) return complain(ncclInvalidArgument, "no sum");
    return take((struct call){ALL_REDUCE, from, to, n, t, comm, stream});
}

ncclResult_t ncclReduceScatter(const void *from, void *to, size_t n, ncclDataType_t t, ncclRedOp_t op,
                               ncclComm_t comm, CUstream stream)
{
    if (op != ncclSum) return complain(ncclInvalidArgument, "no sum");
    return take((struct call){REDUCE_SCATTER, from, to, n, t, comm, stream});
}

ncclResult_t ncclAllGather(const void *from, void *to, size_t n, ncclDataType_t t, ncclComm_t comm,
                           CUstream stream)
{
    return take((struct call){ALL_GATHER, from, to, n, t, comm, stream});
}

/* A function that jit/driver.h names and that is not here ends as an undefined symbol. */
#include "driver.h"
#define ADDRESS(name) (void *)name,
extern void *const fake_nccl_functions[];
void *const fake_nccl_functions[] = {NCCL_FUNCTIONS(ADDRESS)};
