/* util_device.c -- device memory for the GPU tests, by the driver's own calls. */
#include "util_device.h"

#include "../fake/dry.h"

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
    int (*use)(void *);
    int (*stream_new)(void **, unsigned flags);
    int (*stream_wait)(void *);
    int (*capture_begin)(void *, int mode);
    int (*capture_end)(void *, void **);
    int (*instantiate)(void **, void *, unsigned long long flags);
    int (*replay)(void *, void *);
    int (*graph_free)(void *);
    int (*captured_free)(void *);
    int (*stream_free)(void *);
    int (*explain)(int result, const char **);
} driver;

/* As cuda.h has them. */
enum { STREAM_DEFAULT = 0, STREAM_NON_BLOCKING = 1 };
enum { CAPTURE_GLOBAL = 0, CAPTURE_THREAD_LOCAL = 1 };

static bool dry;

static bool find(void *library, const char *name, void *function)
{
    return (*(void **)function = dlsym(library, name)) != NULL;
}

bool device_open(struct jit_device *out, char *err)
{
    if (jit_device_open(out, err)) return false;
    dry = strstr(out->name, DRY_SUFFIX);
    void *cuda = dlopen("libcuda.so.1", RTLD_NOW);
    if (cuda && find(cuda, "cuMemAlloc_v2", &driver.alloc) && find(cuda, "cuMemFree_v2", &driver.release) &&
        find(cuda, "cuMemcpyHtoD_v2", &driver.upload) && find(cuda, "cuMemcpyDtoH_v2", &driver.download) &&
        find(cuda, "cuMemsetD8_v2", &driver.fill) && find(cuda, "cuCtxSynchronize", &driver.wait) &&
        find(cuda, "cuStreamSynchronize", &driver.stream_wait))
        return true;
    snprintf(err, JIT_ERROR_SIZE, "libcuda.so.1 lacks a memory call");
    return false;
}

static bool find_streams(void)
{
    void *cuda = dlopen("libcuda.so.1", RTLD_NOW);
    return cuda && find(cuda, "cuStreamCreate", &driver.stream_new) &&
           find(cuda, "cuGetErrorString", &driver.explain) &&
           find(cuda, "cuStreamBeginCapture_v2", &driver.capture_begin) &&
           find(cuda, "cuStreamEndCapture", &driver.capture_end) &&
           find(cuda, "cuGraphInstantiateWithFlags", &driver.instantiate) &&
           find(cuda, "cuGraphLaunch", &driver.replay) && find(cuda, "cuGraphDestroy", &driver.graph_free) &&
           find(cuda, "cuGraphExecDestroy", &driver.captured_free) &&
           find(cuda, "cuStreamDestroy_v2", &driver.stream_free);
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

int device_contexts(void **context, int most)
{
    void *cuda = dlopen("libcuda.so.1", RTLD_NOW);
    int (*get)(int *, int), (*retain)(void **, int), d, n = 0;
    if (!cuda || !find(cuda, "cuDeviceGet", &get) || !find(cuda, "cuDevicePrimaryCtxRetain", &retain) ||
        !find(cuda, "cuCtxSetCurrent", &driver.use))
        return 0;
    while (n < most && !get(&d, n) && !retain(&context[n], d)) n++;
    return n;
}

void *device_context_new(int ordinal)
{
    void *cuda = dlopen("libcuda.so.1", RTLD_NOW), *made = NULL;
    int (*create)(void **, unsigned flags, int device), (*pop)(void **);
    bool found = cuda && find(cuda, "cuCtxCreate_v2", &create) && find(cuda, "cuCtxPopCurrent_v2", &pop);
    return found && !create(&made, 0, ordinal) && !pop(&made) ? made : NULL;
}

bool device_use(void *context) { return !driver.use(context); }

void *device_current(void)
{
    void *cuda = dlopen("libcuda.so.1", RTLD_NOW), *current = NULL;
    int (*get)(void **);
    return !cuda || !find(cuda, "cuCtxGetCurrent", &get) || get(&current) ? NULL : current;
}

bool device_emulated(const struct jit_device *d) { return !strncmp(d->name, "emulated", 8); }

bool device_dry(void) { return dry; }

void *device_alloc(size_t bytes)
{
    uint64_t p = 0;
    return driver.alloc(&p, bytes ? bytes : 1) ? NULL : (void *)(uintptr_t)p;
}

void device_free(void *p)
{
    if (p) driver.release((uintptr_t)p);
}

/* Both return while they are under way on the default stream, for which the tests' streams do not wait. */
bool device_upload(void *to, const void *from, size_t bytes)
{
    return !bytes || (!driver.upload((uintptr_t)to, from, bytes) && !driver.stream_wait(NULL));
}

bool device_download(void *to, const void *from, size_t bytes)
{
    return !bytes || !driver.download(to, (uintptr_t)from, bytes);
}

bool device_fill(void *to, unsigned char byte, size_t bytes)
{
    return !bytes || (!driver.fill((uintptr_t)to, byte, bytes) && !driver.stream_wait(NULL));
}

bool device_wait(void) { return driver.wait() == 0; }

static void *stream_new(unsigned flags)
{
    void *stream = NULL;
    return !find_streams() || driver.stream_new(&stream, flags) ? NULL : stream;
}

void *device_stream_new(void) { return stream_new(STREAM_NON_BLOCKING); }
void *device_stream_new_blocking(void) { return stream_new(STREAM_DEFAULT); }

bool device_stream_wait(void *stream) { return !driver.stream_wait(stream); }

bool device_capture_begin(void *stream) { return !driver.capture_begin(stream, CAPTURE_GLOBAL); }
bool device_capture_begin_beside(void *stream) { return !driver.capture_begin(stream, CAPTURE_THREAD_LOCAL); }

void *device_capture_end(void *stream)
{
    void *graph = NULL, *captured = NULL;
    if (driver.capture_end(stream, &graph)) return NULL;
    if (driver.instantiate(&captured, graph, 0)) captured = NULL;
    driver.graph_free(graph);
    return captured;
}

void device_captured_free(void *captured)
{
    if (captured) driver.captured_free(captured);
}

void device_stream_free(void *stream)
{
    if (stream) driver.stream_free(stream);
}

static _Thread_local char reason[300];

static void keep_reason(int result)
{
    const char *text = NULL;
    bool known = driver.explain && !driver.explain(result, &text) && text;
    snprintf(reason, sizeof reason, "%s", known ? text : "no reason is known");
}
const char *device_reason(void) { return reason; }

bool device_replay(void *captured, void *stream)
{
    int r = driver.replay(captured, stream);
    if (r) keep_reason(r);
    return !r;
}

double device_clock(void)
{
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}
