/*
 * device.c -- host memory and libcuda behind the same five calls.
 */
#include <stdlib.h>
#include <string.h>

#include "device.h"
#include "tensor.h"

bool device_open_at(struct device *d, coda_device wanted, int number)
{
    *d = (struct device){0};
    d->on_gpu = wanted != CODA_DEVICE_CPU && !gpu_open_at(&d->gpu, number);
    return d->on_gpu || wanted != CODA_DEVICE_GPU;
}

bool device_open(struct device *d, coda_device wanted) { return device_open_at(d, wanted, 0); }

bool device_plan(struct device *d, coda_device wanted)
{
    if (device_open(d, wanted)) return true;
    d->on_gpu = d->absent = true;
    strcpy(d->gpu.name, "a GPU of sm_90a, which is not here");
    return true;
}

bool device_enter(const struct device *d) { return !d->on_gpu || !d->gpu.context_set(d->gpu.context); }

coda_compile_options device_target(const struct device *d)
{
    coda_compile_options o = CODA_COMPILE_OPTIONS_INIT;
    o.device = d->absent ? CODA_DEVICE_NONE : d->on_gpu ? CODA_DEVICE_GPU : CODA_DEVICE_CPU;
    return o;
}

const char *device_name(const struct device *d) { return d->on_gpu ? d->gpu.name : "the CPU device"; }

void *device_alloc(struct device *d, size_t bytes)
{
    return d->on_gpu ? (void *)gpu_alloc(&d->gpu, bytes) : host_scratch(bytes);
}

void device_free(struct device *d, void *p)
{
    if (!d->on_gpu) free(p);
    else if (p) d->gpu.free((gpu_address)p);
}

bool device_clear(struct device *d, void *p, size_t bytes)
{
    if (d->on_gpu) return !bytes || !d->gpu.set((gpu_address)p, 0, bytes);
    if (bytes) memset(p, 0, bytes);
    return true;
}

bool device_write(struct device *d, void *to, const void *from, size_t bytes)
{
    if (d->on_gpu) return !bytes || !d->gpu.upload((gpu_address)to, from, bytes);
    memcpy(to, from, bytes);
    return true;
}

bool device_read(struct device *d, void *to, const void *from, size_t bytes)
{
    if (d->on_gpu) return !bytes || !d->gpu.download(to, (gpu_address)from, bytes);
    memcpy(to, from, bytes);
    return true;
}

bool device_copy(struct device *d, void *to, const void *from, size_t bytes)
{
    if (d->on_gpu) return !bytes || !d->gpu.copy((gpu_address)to, (gpu_address)from, bytes);
    memcpy(to, from, bytes);
    return true;
}

/* Pinned, if it can be had. */
void *device_staging(struct device *d, size_t bytes)
{
    if (!d->staging && d->on_gpu && d->gpu.host_alloc(&d->staging, bytes)) d->staging = NULL;
    if (!d->staging && !d->on_gpu) d->staging = host_scratch(bytes);
    return d->staging;
}

void device_unstage(struct device *d)
{
    if (!d->staging) return;
    if (d->on_gpu) d->gpu.host_free(d->staging);
    else free(d->staging);
    d->staging = NULL;
}
