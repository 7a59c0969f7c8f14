/*
 * transfers.c -- copies between the host and devices. Those to a device on the default stream, and what it
 * sets, return before they have happened: they come as late as they may, when somebody waits for that stream
 * or gives it more. A stream that is CU_STREAM_NON_BLOCKING does not, so what it launches finds old memory.
 */
#include "driver_inside.h"

#include <pthread.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

struct transfer {
    struct transfer *next;
    unsigned char *to;
    size_t size;
    unsigned char data[];
};

static struct transfer *first, **end = &first; /* all devices' */
static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;

void transfers_finish(void)
{
    pthread_mutex_lock(&lock);
    for (struct transfer *t = first, *next; t; t = next) {
        next = t->next;
        if (in_device_memory(t->to, t->size)) memcpy(t->to, t->data, t->size);
        free(t);
    }
    first = NULL, end = &first;
    pthread_mutex_unlock(&lock);
}

/* From the host's memory, or all of one byte. */
static CUresult later(CUdeviceptr to, const void *from, unsigned char byte, size_t size)
{
    if (!in_device_memory((void *)(uintptr_t)to, size)) return CUDA_ERROR_INVALID_VALUE;
    struct transfer *t = malloc(sizeof *t + size);
    if (!t) return CUDA_ERROR_OUT_OF_MEMORY;
    *t = (struct transfer){.to = (unsigned char *)(uintptr_t)to, .size = size};
    if (from) memcpy(t->data, from, size);
    else memset(t->data, byte, size);
    pthread_mutex_lock(&lock);
    *end = t, end = &t->next;
    pthread_mutex_unlock(&lock);
    return CUDA_SUCCESS;
}

static CUresult now(void *to, const void *from, size_t size, const void *device)
{
    if (!in_device_memory(device, size)) return CUDA_ERROR_INVALID_VALUE;
    return memmove(to, from, size), CUDA_SUCCESS;
}

CUresult cuMemcpyHtoD_v2(CUdeviceptr to, const void *from, size_t size) { return later(to, from, 0, size); }
CUresult cuMemsetD8_v2(CUdeviceptr to, unsigned char byte, size_t size)
{
    return later(to, NULL, byte, size);
}

CUresult cuMemcpyDtoH_v2(void *to, CUdeviceptr from, size_t size)
{
    transfers_finish();
    return now(to, (void *)(uintptr_t)from, size, (void *)(uintptr_t)from);
}

static CUresult between(CUdeviceptr to, CUdeviceptr from, size_t size)
{
    if (!in_device_memory((void *)(uintptr_t)from, size)) return CUDA_ERROR_INVALID_VALUE;
    return now((void *)(uintptr_t)to, (void *)(uintptr_t)from, size, (void *)(uintptr_t)to);
}

CUresult cuMemcpyDtoD_v2(CUdeviceptr to, CUdeviceptr from, size_t size)
{
    transfers_finish();
    return between(to, from, size);
}

/* Other streams run at once; a graph records launches, and copies between devices. */
CUresult cuMemcpyHtoDAsync_v2(CUdeviceptr to, const void *from, size_t size, CUstream s)
{
    if (stream_records(s)) return CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED;
    stream_wait_default(s);
    return now((void *)(uintptr_t)to, from, size, (void *)(uintptr_t)to);
}
CUresult cuMemcpyDtoHAsync_v2(void *to, CUdeviceptr from, size_t size, CUstream s)
{
    if (stream_records(s)) return CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED;
    stream_wait_default(s);
    return now(to, (void *)(uintptr_t)from, size, (void *)(uintptr_t)from);
}

/* ---- Copy engines ---- */

struct engine_copy {
    unsigned char *to;
    const unsigned char *from;
    size_t size;
};

/* Pieces take effect in any order, now and then one is late: who does not wait for the end sees some. */
static int copy_pieces(void *parameters)
{
    enum { PIECES = 8, LATE_US = 200 };
    static uint64_t random = 1;
    const struct engine_copy *c = parameters;
    size_t each = (c->size + PIECES - 1) / PIECES;
    unsigned drawn = (unsigned)(__atomic_add_fetch(&random, 0x9e3779b97f4a7c15u, __ATOMIC_RELAXED) >> 33);
    for (unsigned i = 0; i < PIECES; i++) {
        size_t at = (drawn + 3 * i) % PIECES * each;
        if ((drawn >> 3) % PIECES == i) usleep((drawn >> 6) % LATE_US);
        if (at < c->size) memcpy(c->to + at, c->from + at, c->size - at < each ? c->size - at : each);
    }
    return CUDA_SUCCESS;
}

CUresult cuMemcpyDtoDAsync_v2(CUdeviceptr to, CUdeviceptr from, size_t size, CUstream s)
{
    struct engine_copy c = {(unsigned char *)(uintptr_t)to, (const unsigned char *)(uintptr_t)from, size};
    if (!in_device_memory(c.to, size) || !in_device_memory(c.from, size)) return CUDA_ERROR_INVALID_VALUE;
    stream_wait_default(s);
    return (CUresult)emu_stream_call(s, copy_pieces, &c, sizeof c);
}
