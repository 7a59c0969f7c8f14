/*
 * device.h -- memory where a plan runs: the CPU device's, or a GPU's.
 */
#ifndef DEVICE_H
#define DEVICE_H

#include <stdbool.h>

#include "gpu.h"

struct device {
    bool on_gpu;
    bool absent; /* a GPU that only plans are made for */
    struct gpu gpu;
    void *staging; /* memory of the host that copies read fast; NULL until someone wants it */
};

/* `wanted` CODA_DEVICE_GPU: false if there is none; CODA_DEVICE_NONE: a GPU if there is one, else the CPU. */
bool device_open(struct device *d, coda_device wanted);
/* The same of the GPU of this number. */
bool device_open_at(struct device *d, coda_device wanted, int number);
/* The same for those who only make plans: CODA_DEVICE_GPU need not be there. */
bool device_plan(struct device *d, coda_device wanted);
/* For a thread that did not open it. */
bool device_enter(const struct device *d);
/* What coda_compile must know of it. */
coda_compile_options device_target(const struct device *d);
const char *device_name(const struct device *d);

/* Aligned to 256 bytes; NULL if there is not enough. */
void *device_alloc(struct device *d, size_t bytes);
void device_free(struct device *d, void *p);

/* All bytes 0. */
bool device_clear(struct device *d, void *p, size_t bytes);
bool device_write(struct device *d, void *to, const void *from, size_t bytes);
bool device_read(struct device *d, void *to, const void *from, size_t bytes);
/* d->staging of so many bytes, which it keeps until device_unstage; NULL if there is not enough. */
void *device_staging(struct device *d, size_t bytes);
void device_unstage(struct device *d);
/* From one place of the device to another one; they do not overlap. */
bool device_copy(struct device *d, void *to, const void *from, size_t bytes);

#endif
