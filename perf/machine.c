/* machine.c -- opens libcuda and the first GPU. */
#include "machine.h"

#include <dlfcn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
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

static int host_alloc(address *to, size_t bytes)
{
    void *p = NULL;
    int bad = posix_memalign(&p, 256, bytes);
    *to = (address)p;
    return bad;
}

static int host_set(address to, unsigned char byte, size_t bytes)
{
    memset((void *)to, byte, bytes);
    return 0;
}

static int host_upload(address to, const void *from, size_t bytes)
{
    memcpy((void *)to, from, bytes);
    return 0;
}

static int host_download(void *to, address from, size_t bytes)
{
    memcpy(to, (const void *)from, bytes);
    return 0;
}

static int host_copy(address to, address from, size_t bytes)
{
    return host_upload(to, (const void *)from, bytes);
}

static int host_wait(coda_stream stream) { return stream != NULL; }

void machine_of_host(struct machine *m)
{
    m->alloc = host_alloc;
    m->set = host_set;
    m->upload = host_upload;
    m->download = host_download;
    m->copy = host_copy;
    m->stream_wait = host_wait;
}

double clock_us(void)
{
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec * 1e6 + (double)t.tv_nsec * 1e-3;
}
