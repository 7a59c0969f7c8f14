/*
 * jit.h -- CUDA text in, launchable kernel out. Knows no graphs.
 *
 * libcuda, libnvrtc, libcublasLt and libnccl are opened with dlopen at first need; every function that needs
 * a missing one fails with CODA_E_DEVICE and says which. `err` receives one line on failure; it may not be
 * NULL.
 */
#ifndef JIT_H
#define JIT_H

#include <pthread.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "coda.h"

#define JIT_ERROR_SIZE 512

/* A variable's value; NULL if it is not set, empty, or does not count: this is a setuid program. */
const char *jit_environment(const char *name);

/* ---- process.c ---- */

/* All of a text to a descriptor. Nothing happens if it cannot be: no signal is raised. */
void jit_write(int fd, const char *text);

/* ---- thread.c ---- */

/* A thread that takes no signals of its process but its own faults, with 8 MB of stack, whatever others get:
 * compilers recurse. False: the system has no more. */
bool jit_start_thread(pthread_t *thread, void *(*fn)(void *), void *ctx);

/* ---- driver.c, device.c ---- */

struct jit_device {
    int ordinal;
    char name[128];
    char arch[16];         /* "sm_90a" */
    int sms, shared_bytes; /* a block may have (opt-in) */
    int driver;            /* 13000 = 13.0 */
    int boost_mhz;         /* the highest clock of its SMs; 0: the driver does not say */
    size_t memory;
    int64_t l2_size;    /* bytes; 0: the driver does not say */
    double memory_rate; /* bytes in a second at most; 0: likewise */
    void *context;      /* CUcontext that kernels are loaded into */
};
/* The current context's device, or device 0 with its primary context made current. */
coda_status jit_device_open(struct jit_device *out, char *err);
/* Between the two its context is this thread's, which may have none, or another; then again what was. */
coda_status jit_device_enter(const struct jit_device *dev, char *err);
void jit_device_leave(void);
/* Is its context this thread's? The default stream is the current context's; a device may have several. */
bool jit_device_is_current(const struct jit_device *dev);
/* The number of the allocation that p lies in, which no other gets while the process lives; 0 if unknown. */
uint64_t jit_allocation(const void *p);
/* "13.0" and the path of the library that was loaded, or why it was not. True if available. */
bool jit_driver_info(char *line, size_t size);
bool jit_nvrtc_info(char *line, size_t size);
bool jit_cublaslt_info(char *line, size_t size);
bool jit_nccl_info(char *line, size_t size);

/* ---- caches.c ---- */

/* The cache, or the process's own if it is NULL, which the environment describes; NULL if memory ran out. */
struct coda_cache *jit_cache(struct coda_cache *c);
bool jit_cache_info(char *line, size_t size); /* the process's own directory, or why there is none */

/* ---- bundles.c: what goes into one ---- */

struct jit_cubin;
struct jit_exported {
    const struct jit_cubin *cubin;
    const char *text; /* its source */
};
struct jit_tuned {
    const char *what, *arch; /* as given to jit_figures_get */
    const struct jit_device *dev;
};
struct jit_export {
    const char *path, *keys, *arch, *array; /* as in coda_export_options */
    const struct jit_exported *kernel;      /* NULL: what the directory has */
    int kernels;
    const struct jit_tuned *tuned; /* ... and the figures that the cache has of these */
    int tuneds;
};
coda_status jit_export(struct coda_cache *c, const struct jit_export *e, coda_bundle_report *out, char *err);

/* ---- cubin.c: text -> cubin, through the cache ---- */

struct jit_options {
    const char *arch;         /* "sm_90a" */
    struct coda_cache *cache; /* NULL: the process's own */
    bool no_cache;
};
struct jit_cubin {
    const void *image; /* until jit_cubin_free */
    size_t size;
    bool cached; /* not made by this call */
    bool fresh;  /* made by this process: a driver that refuses it will do so again */
    double compile_ms;
    int registers, spill_bytes;      /* from ptxas; -1 if unknown */
    char warning[160];               /* first C75xx line of the log, or "" */
    char name[65];                   /* in the cache: 64 hex digits; "" without one */
    const char *missed;              /* why it was not in the cache, in a word; "" if it was */
    bool unkeyed;                    /* made of more than its key says: not for a cache or a bundle */
    const struct cache_value *value; /* what holds the image */
    char *what, *by;                 /* its key, see cache.h; by may be NULL */
    struct coda_cache *cache;        /* where it is kept, or NULL */
};
/* `text` may include any file of primitives/ by its path. On a compile error: CODA_E_COMPILE and the
 * first error line. Safe from several threads. */
coda_status jit_compile(struct jit_cubin *out, const char *symbol, const char *text,
                        const struct jit_options *opt, char *err);
/* The same once more, after a driver refused what came from the cache. */
coda_status jit_recompile(struct jit_cubin *c, const char *symbol, const char *text,
                          const struct jit_options *opt, char *err);
void jit_cubin_free(struct jit_cubin *c);
/* coda_compile_worker(). */
int jit_worker(int in, int out);

/* ---- loaded.c, module.c, launch.c ---- */

struct jit_kernel;
/* Loads a cubin and finds `symbol` (extern "C", one parameter), sets its shared memory limit, forces
 * the load into dev->context; or finds it loaded there. The calling thread needs no context; c may be
 * freed afterwards. *refused, which may be NULL, says that the driver does not take the image. */
coda_status jit_load(struct jit_kernel **out, const struct jit_cubin *c, const char *symbol, int shared_bytes,
                     const struct jit_device *dev, bool *refused, char *err);
/* All memory that an SM has for either goes to shared memory, not L1, so that another kernel's block fits
 * beside one that takes half. A hint. */
void jit_prefer_shared(const struct jit_kernel *k);
/* One more that holds it, and gives it back. */
void jit_share(struct jit_kernel *k);
/* Gives it back. It stays loaded for whoever wants it next, until others have taken its place. */
void jit_unload(struct jit_kernel *k);
/* Unloads all that nobody uses. */
void jit_unload_idle(void);
/* From now on a child of fork() may load and unload, whatever the parent's other threads did. Before a fork()
 * the caller's own locks, inside of which it calls any of these, are to be taken first: see forks.c. */
void jit_watch_forks(void);

/* A tiled tensor map; dimension 0 is innermost. */
struct jit_map {
    _Alignas(128) uint64_t opaque[16];
};
struct jit_map_shape {
    coda_dtype dtype;
    int rank;
    int64_t dim[5], stride[5]; /* elements */
    int box[5];
    int swizzle;      /* bytes: 0, 32, 64, 128 */
    int l2_promotion; /* bytes: 0, 64, 128, 256 */
};
coda_status jit_map_encode(struct jit_map *out, const struct jit_map_shape *s, void *address, char *err);
coda_status jit_map_rebase(struct jit_map *map, void *address, char *err);

/* One parameter struct: `bytes` bytes, in memory that goes on to a multiple of JIT_PARAMS_ALIGN for the
 * struct's tail padding, which becomes 0. A size that is not the kernel's is refused. Nothing happens if
 * grid is 0. The default stream is the current context's. No allocation, lock, or system call of its own. */
#define JIT_PARAMS_ALIGN 128
struct jit_launch {
    unsigned grid, threads, shared_bytes;
    bool pdl;
};
coda_status jit_launch(const struct jit_kernel *k, const struct jit_launch *l, void *params, size_t bytes,
                       coda_stream stream, char *err);
/* Records a CUevent of the caller's. */
coda_status jit_record(void *event, coda_stream stream, char *err);

/* What this thread loads ends no capture of another thread's. */
void jit_spare_captures(void);
/* Is the stream being captured, or barred from work by a capture elsewhere in its context? To load a kernel
 * could end it. */
bool jit_is_captured(coda_stream stream);

/* ---- cublaslt.c: D[M,N] = A[M,K] B[N,K]^T, row-major, by strides ---- */

struct jit_lt;
struct jit_lt_shape {
    coda_dtype in, out;
    int64_t batch, m, n, k;
    int64_t a_batch, b_batch, d_batch; /* elements */
    int64_t lda, ldb, ldd;             /* elements */
    bool a_t, b_t;                     /* a is stored [K,M] with pitch lda; b is stored [K,N] */
    int align;                         /* bytes that a, b and d are multiples of; 0: 16 */
    int64_t workspace;                 /* bytes that a run may use */
};
/* The top of the heuristic list, for the current context's device. CODA_E_UNSUPPORTED if cuBLASLt has
 * none, for k = 0, and for dtypes other than t -> t and t -> f32. An empty D is fine: nothing runs. */
coda_status jit_lt_new(struct jit_lt **out, const struct jit_lt_shape *s, char *err);
coda_status jit_lt_run(const struct jit_lt *lt, const void *a, const void *b, void *d, void *workspace,
                       coda_stream stream, char *err);
void jit_lt_free(struct jit_lt *lt);

/* ---- side.c: a second stream, for what runs beside others ---- */

struct jit_side;
/* Of the current context's device. */
coda_status jit_side_new(struct jit_side **out, char *err);
void jit_side_free(struct jit_side *s); /* NULL is fine */
coda_stream jit_side_stream(const struct jit_side *s);
/* So many marks at least, from 0 on, which a run sets anew; and how many there are, none of NULL. */
coda_status jit_side_reserve(struct jit_side *s, int marks, char *err);
int jit_side_marks(const struct jit_side *s);
/* Sets a mark behind what a stream has; lets a stream wait for it, as it has been set last. */
coda_status jit_side_mark(const struct jit_side *s, int mark, coda_stream stream, char *err);
coda_status jit_side_wait(const struct jit_side *s, int mark, coda_stream stream, char *err);

/* ---- peers.c: what kernels of several devices share ---- */

/* Lets kernels of this device, whose context is current, reach memory of another one's context; *can: they
 * do. Two contexts of one device do not. */
coda_status jit_reach(const struct jit_device *own, const struct jit_device *other, bool *can, char *err);
/* What another process of this host opens memory of jit_alloc by, whose size is a multiple of JIT_SHARED_UNIT
 * so that nothing else lies in it; and where that lies then for the current context. Who has opened it closes
 * it before it is freed. */
enum { JIT_SHARED = 64, JIT_SHARED_UNIT = 2 << 20 };
coda_status jit_ipc_handle(const void *p, void *handle, char *err);
coda_status jit_ipc_open(void **out, const void *handle, char *err);
void jit_ipc_close(void *p);
/* Copies between memory that this device reaches, by its copy engines: given to the stream. */
coda_status jit_copy(void *to, const void *from, size_t bytes, coda_stream stream, char *err);
/* Writes a word to memory that this device reaches; behind what its blocking streams have, if that ends. */
coda_status jit_poke(void *to, uint32_t word);
/* Numbers of this process, and of what it has in common with those that may open its memory: the host as it
 * was started, and its numbers of processes. */
uint64_t jit_process(void);
uint64_t jit_host(void);
/* Memory of the host, zeros, at one address for all: kernels read and write it beside the host. */
coda_status jit_host_alloc(void **out, size_t bytes, char *err);
void jit_host_free(void *p);

/* ---- nccl.c: exchanges between ranks, of a device each ---- */

struct jit_comm;
enum { JIT_COMM_ID = 128 }; /* bytes */
/* What names a communicator that is to be made: one rank asks, all get it. */
coda_status jit_comm_id(void *id, char *err);
/* Returns when all ranks have called it; of the current context's device. */
coda_status jit_comm_new(struct jit_comm **out, int rank, int ranks, const void *id, char *err);
/* An ncclComm_t of the caller's, which is not destroyed with it, but is by an abort. */
coda_status jit_comm_adopt(struct jit_comm **out, void *comm, int *rank, int *ranks, char *err);
int jit_comm_device(const struct jit_comm *c); /* its ordinal */
/* Any thread may call it. Whoever waits in an exchange of this rank's goes on. */
void jit_comm_abort(struct jit_comm *c);
void jit_comm_free(struct jit_comm *c); /* NULL is fine */

struct jit_exchange {
    enum { JIT_ALL_REDUCE, JIT_REDUCE_SCATTER, JIT_ALL_GATHER } kind;
    coda_dtype dtype;        /* f32, bf16 or f16; of a gather any */
    int64_t runs;            /* each an exchange by itself, one behind the other */
    int64_t elements, bytes; /* of a run: of the smaller of its two tensors */
};
/* Gives it to the stream. */
coda_status jit_comm_run(struct jit_comm *c, const struct jit_exchange *x, const void *from, void *to,
                         coda_stream stream, char *err);
/* What NCCL has noticed since; and, unless timeout_ms is 0, whether the last exchange is under way for
 * longer. */
coda_status jit_comm_status(struct jit_comm *c, int timeout_ms, char *err);
/* What each rank brings, in the order of ranks: returns when it is there. On failure the communicator is
 * aborted. */
coda_status jit_comm_gather(struct jit_comm *c, const void *mine, size_t bytes, void *all, int timeout_ms,
                            char *err);

/* ---- figures.c: what was measured on a device, kept in the cache ---- */

/* The text kept for `what` (any text) on devices like this one: malloc'd, NULL if there is none. */
char *jit_figures_get(const char *what, const struct jit_device *dev, const struct jit_options *opt);
void jit_figures_put(const char *what, const struct jit_device *dev, const struct jit_options *opt,
                     const char *text);

/* ---- events.c: who is told what happens ---- */

/* As coda_on_event(), whose arguments are checked. */
void jit_listen(void (*fn)(void *context, const coda_event *event), void *context, unsigned kinds);
void jit_tell(coda_event_kind kind, const char *name, const char *text, double ms);
/* Tells the process's listeners, once, that files which this variable asks for are not written. */
enum jit_file { JIT_FILE_TRACE, JIT_FILE_DUMP };
void jit_tell_unwritten(enum jit_file file, const char *why);
double jit_milliseconds(void);

/* ---- trace.c: $CODA_TRACE ---- */

bool jit_traces(void);
const char *
jit_trace_problem(void); /* the file, and why it is not written; NULL: it is, or nobody wants one */
/* What was from `began_ms` of jit_milliseconds() on, so long. Nothing happens if no file wants it. */
void jit_trace(const char *what, const char *name, double began_ms, double ms);

/* ---- ranges.c: what profilers show over the launches of a thread (NVTX) ---- */

/* Does a tool listen? It is looked for at the first call. */
bool jit_ranges(void);
/* Only where one does. `name` stays until the pop. */
void jit_range_push(const char *name);
void jit_range_pop(void);

/* ---- measure.c: device memory and the time of launches, for measurements; in the current context ---- */

size_t jit_memory_free(void); /* bytes; 0 if nobody knows */
coda_status jit_alloc(void **out, size_t bytes, char *err);
void jit_free(void *p);
/* Repeats a pattern of `period` bytes, and waits. */
coda_status jit_fill(void *to, size_t bytes, const void *pattern, size_t period, char *err);
coda_status jit_download(void *to, const void *from, size_t bytes, char *err);

struct jit_clock;  /* a stream and what times it */
struct jit_replay; /* launches, recorded */
coda_status jit_clock_new(struct jit_clock **out, char *err);
coda_stream jit_clock_stream(const struct jit_clock *c);
coda_status jit_clock_wait(const struct jit_clock *c, char *err);
void jit_clock_free(struct jit_clock *c);
/* What is launched on the clock's stream between begin and end does not run, but is recorded. */
coda_status jit_record_begin(const struct jit_clock *c, char *err);
coda_status jit_record_end(struct jit_replay **out, const struct jit_clock *c, char *err);
/* Begins a copy on the clock's stream. */
coda_status jit_clock_copy(const struct jit_clock *c, void *to, const void *from, size_t bytes, char *err);
/* Moments on its stream, `n` of them: from `at - 1` to `at`, which are waited for, in microseconds. */
struct jit_marks;
coda_status jit_marks_new(struct jit_marks **out, const struct jit_clock *c, int n, char *err);
coda_status jit_mark(const struct jit_marks *m, int at, char *err);
coda_status jit_marks_time(const struct jit_marks *m, int at, double *us, char *err);
void jit_marks_free(struct jit_marks *m); /* before the clock */
/* Waits for a stream of the caller's. */
coda_status jit_stream_wait(coda_stream stream, char *err);
/* Runs the recording and waits; microseconds on the device. */
coda_status jit_replay_time(const struct jit_replay *p, const struct jit_clock *c, double *us, char *err);
void jit_replay_free(struct jit_replay *p);

#endif
