/* memory.c -- the host's memory, or the GPU's by a few calls of its driver. */
#include "memory.h"

#include <dlfcn.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { PAD = 256, PAD_BYTE = 0xa5 };

/* The driver's calls, 0 is success; a pointer on the device is an integer. */
static struct {
    int (*init)(unsigned);
    int (*retain)(void **context, int device);
    int (*use)(void *context);
    int (*alloc)(uint64_t *p, size_t bytes);
    int (*release)(uint64_t p);
    int (*put)(uint64_t to, const void *from, size_t bytes);
    int (*get)(void *to, uint64_t from, size_t bytes);
    int (*fill)(uint64_t to, unsigned char byte, size_t bytes);
    int (*wait)(void);
} cu;
static bool gpu;

static bool find(void *library, const char *name, void *call)
{
    void *found = dlsym(library, name);
    memcpy(call, &found, sizeof found);
    return found != NULL;
}

bool memory_use_gpu(void)
{
    const char *path = getenv("CODA_LIBCUDA");
    void *context, *lib = dlopen(path ? path : "libcuda.so.1", RTLD_NOW);
    gpu = lib && find(lib, "cuInit", &cu.init) && find(lib, "cuDevicePrimaryCtxRetain", &cu.retain) &&
          find(lib, "cuCtxSetCurrent", &cu.use) && find(lib, "cuMemAlloc_v2", &cu.alloc) &&
          find(lib, "cuMemFree_v2", &cu.release) && find(lib, "cuMemcpyHtoD_v2", &cu.put) &&
          find(lib, "cuMemcpyDtoH_v2", &cu.get) && find(lib, "cuMemsetD8_v2", &cu.fill) &&
          find(lib, "cuCtxSynchronize", &cu.wait) && cu.init(0) == 0 && cu.retain(&context, 0) == 0 &&
          cu.use(context) == 0;
    return gpu;
}

static void check(bool good, const char *what)
{
    if (good) return;
    printf("conformance: %s\n", what);
    exit(2);
}

void *memory_new(size_t bytes, unsigned char poison)
{
    void *p = NULL;
    uint64_t at = 0;
    size_t all = (bytes + PAD + 255) / 256 * 256;
    if (gpu) {
        check(cu.alloc(&at, all) == 0, "no device memory");
        p = (void *)(uintptr_t)at;
    } else check((p = aligned_alloc(256, all)) != NULL, "no memory");
    memory_fill(p, poison, bytes);
    memory_fill((char *)p + bytes, PAD_BYTE, PAD);
    return p;
}

void memory_free(void *p)
{
    if (gpu && p) cu.release((uintptr_t)p);
    else free(p);
}

void memory_fill(void *p, unsigned char byte, size_t bytes)
{
    if (!gpu) memset(p, byte, bytes);
    else if (bytes) check(cu.fill((uintptr_t)p, byte, bytes) == 0, "the device's memory cannot be filled");
}

void memory_put(void *to, const void *from, size_t bytes)
{
    if (!gpu) memcpy(to, from, bytes);
    else if (bytes) check(cu.put((uintptr_t)to, from, bytes) == 0, "the device's memory cannot be written");
}

void memory_get(void *to, const void *from, size_t bytes)
{
    if (!gpu) memcpy(to, from, bytes);
    else if (bytes)
        check(cu.wait() == 0 && cu.get(to, (uintptr_t)from, bytes) == 0, "the device's work has failed");
}

bool memory_is_intact(const void *p, size_t bytes)
{
    unsigned char behind[PAD];
    memory_get(behind, (const char *)p + bytes, PAD);
    for (int i = 0; i < PAD; i++)
        if (behind[i] != PAD_BYTE) return false;
    return true;
}
