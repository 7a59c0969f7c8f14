/* driver_inside.h -- what driver.c, stream.c, transfers.c and nvrtc.c share. */
#ifndef DRIVER_INSIDE_H
#define DRIVER_INSIDE_H

#include "beside.h"
#include "machine.h"

/* The "cubin": this, then a shared object. */
#define EMULATED_IMAGE "codaemu"
struct emulated_image {
    char magic[8];
    uint64_t bytes;
    char reserved[48];
};

struct emulated_kernel {
    const struct emu_kernel *entry;
    const char *name;
    unsigned shared_limit;
};

/* What a launch asks for, in which context. `early`: it may begin before the kernel ahead has ended. */
struct emulated_launch {
    unsigned grid, threads, shared;
    bool early;
    int context;
};

/* Keeps the message for cuGetErrorString. */
CUresult emulator_fail(CUresult r, const char *message);
int current_context(void); /* its number; -1: the thread has none */
CUresult emulator_run(const struct emulated_kernel *k, const void *parameters, struct emulated_launch l);

/* ---- transfers.c ---- */

/* What the default stream copies and sets is there now. */
void transfers_finish(void);

/* ---- stream.c ---- */

bool stream_records(CUstream s);
int stream_context(CUstream s); /* where it was made; of the default one the current context, -1: none */
/* What is given to the stream comes behind the default one's, unless it is CU_STREAM_NON_BLOCKING. */
void stream_wait_default(CUstream s);
/* NULL, and the two others that have no memory: each context has its own. */
bool stream_is_default(CUstream s);
bool stream_is_barred(CUstream s); /* by one that waits for it, and records */
CUresult stream_record(CUstream s, const struct emulated_kernel *k, const void *parameters,
                       struct emulated_launch l);

/* For tests, which find it by dlsym: an allocation of the calling thread's that fails, 1: the next one. */
void emu_fail_allocation(int number);

/* For other libraries of the emulator's, which find them by dlsym: a call on a stream, at once or whenever
 * the graph that records is launched; and a stream whose work does not end. */
int emu_stream_call(void *stream, int (*call)(void *), void *parameters, size_t bytes);
void emu_stream_stick(void *stream, int stuck);

#endif
