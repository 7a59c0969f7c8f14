/* util_device.c -- device memory for the GPU tests, by the driver's own calls. */
#include "util_device.h"

#include <dlfcn.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

static struct {
    int (*alloc)(uint64_t *, size_t);
    int (*release)(uint64_t);
    int (*upload)(uint64_t, const void *, size_t);
    int (*download)(void *, uint64_t, size_t);
    int (*fill)(uint64_t, unsigned char, size_t);
    int (*wait)(void);
} driver;

static bool find(void *library, const char *name, void *function)
{
    return (*(void **)function = dlsym(library, name)) != NULL;
}

bool device_open(struct jit_device *out, char *err)
{
    if (jit_device_open(out, err)) return false;
    void *cuda = dlopen("libcuda.so.1", RTLD_NOW);
    if (cuda && find(cuda, "cuMemAlloc_v2", &driver.alloc) && find(cuda, "cuMemFree_v2", &driver.release) &&
        find(cuda, "cuMemcpyHtoD_v2", &driver.upload) && find(cuda, "cuMemcpyDtoH_v2", &driver.download) &&
        find(cuda, "cuMemsetD8_v2", &driver.fill) && find(cuda, "cuCtxSynchronize", &driver.wait))
        return true;
    snprintf(err, JIT_ERROR_SIZE, "libcuda.so.1 lacks a memory call");
    return false;
}

bool device_open_emulated(struct jit_device *out, char *err)
{
    char folder[400], path[500];
    ssize_t n = readlink("/proc/self/exe", folder, sizeof folder - 1);
    if (n <= 0) return snprintf(err, JIT_ERROR_SIZE, "no /proc/self/exe"), false;
    folder[n] = 0;
    *strrchr(folder, '/') = 0;
    snprintf(path, sizeof path, "%s/emulator", folder);
    setenv("CODA_CUDA_LIB", path, 1);
    snprintf(path, sizeof path, "%s/emulator/libcuda.so.1", folder);
    setenv("CODA_LIBCUDA", path, 1);
    return device_open(out, err);
}

bool device_emulated(const struct jit_device *d) { return !strncmp(d->name, "emulated", 8); }

void *device_alloc(size_t bytes)
{
    uint64_t p = 0;
    return driver.alloc(&p, bytes ? bytes : 1) ? NULL : (void *)(uintptr_t)p;
}

void device_free(void *p)
{
    if (p) driver.release((uintptr_t)p);
}

bool device_upload(void *to, const void *from, size_t bytes)
{
    return !bytes || !driver.upload((uintptr_t)to, from, bytes);
}

bool device_download(void *to, const void *from, size_t bytes)
{
    return !bytes || !driver.download(to, (uintptr_t)from, bytes);
}

bool device_fill(void *to, unsigned char byte, size_t bytes)
{
    return !bytes || !driver.fill((uintptr_t)to, byte, bytes);
}

bool device_wait(void) { return driver.wait() == 0; }

double device_clock(void)
{
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}
