/* machine.c -- opens libcuda and the first GPU. */
#include "machine.h"

#include <dlfcn.h>
#include <stdio.h>
#include <stdlib.h>
#include <time.h>

void must(int result, const char *what)
{
    if (!result) return;
    fprintf(stderr, "perf: %s failed with %d\n", what, result);
    exit(1);
}

static void *find(void *lib, const char *symbol)
{
    void *p = dlsym(lib, symbol);
    must(!p, symbol);
    return p;
}

/* Has the driver a GPU? */
bool machine_exists(void)
{
    int (*init)(unsigned), (*count)(int *), n = 0;
    void *lib = dlopen("libcuda.so.1", RTLD_NOW | RTLD_LOCAL);
    if (!lib) return false;
    *(void **)&init = find(lib, "cuInit");
    *(void **)&count = find(lib, "cuDeviceGetCount");
    return !init(0) && !count(&n) && n > 0;
}

void machine_open(struct machine *m)
{
    void *context;
    int device;
    m->lib = dlopen("libcuda.so.1", RTLD_NOW | RTLD_LOCAL);
    if (!m->lib) {
        fprintf(stderr, "perf: no driver: %s\n", dlerror());
        exit(1);
    }
#define MACHINE_FIND(field, symbol, parameters) *(void **)&m->field = find(m->lib, symbol);
    MACHINE_CALLS(MACHINE_FIND)
#undef MACHINE_FIND
    must(m->init(0), "cuInit");
    must(m->device_get(&device, 0), "cuDeviceGet");
    must(m->device_name(m->name, sizeof m->name, device), "cuDeviceGetName");
    must(m->context_retain(&context, device), "cuDevicePrimaryCtxRetain");
    must(m->context_set(context), "cuCtxSetCurrent");
    must(m->stream_new(&m->stream, 1), "cuStreamCreate");
}

double clock_us(void)
{
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec * 1e6 + (double)t.tv_nsec * 1e-3;
}
