/* peers.c -- what kernels of several devices share: memory of each, which the others reach, of one process or
 * several; and memory of the host. */
#include <fcntl.h>
#include <stdatomic.h>
#include <string.h>
#include <sys/random.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#include "driver.h"

coda_status jit_reach(const struct jit_device *own, const struct jit_device *other, bool *can, char *err)
{
    const struct driver *d = driver_open(err);
    int yes = 0;
    *can = own->context == other->context;
    if (!d) return CODA_E_DEVICE;
    if (*can || own->ordinal == other->ordinal) return CODA_OK;
    CUresult r = d->cuDeviceCanAccessPeer(&yes, own->ordinal, other->ordinal);
    if (r) return driver_fail(d, err, r, "cuDeviceCanAccessPeer");
    if (!yes) return CODA_OK;
    r = d->cuCtxEnablePeerAccess(other->context, 0);
    *can = !r || r == CUDA_ERROR_PEER_ACCESS_ALREADY_ENABLED;
    if (*can || r == CUDA_ERROR_PEER_ACCESS_UNSUPPORTED || r == CUDA_ERROR_TOO_MANY_PEERS) return CODA_OK;
    return driver_fail(d, err, r, "cuCtxEnablePeerAccess");
}

/* ---- Between processes ---- */

_Static_assert(sizeof(CUipcMemHandle) == JIT_SHARED, "a handle has so many bytes");

coda_status jit_ipc_handle(const void *p, void *handle, char *err)
{
    const struct driver *d = driver_open(err);
    CUipcMemHandle made;
    if (!d) return CODA_E_DEVICE;
    CUresult r = d->cuIpcGetMemHandle(&made, (CUdeviceptr)p);
    if (r) return driver_fail(d, err, r, "cuIpcGetMemHandle");
    memcpy(handle, &made, sizeof made);
    return CODA_OK;
}

coda_status jit_ipc_open(void **out, const void *handle, char *err)
{
    const struct driver *d = driver_open(err);
    CUipcMemHandle of;
    CUdeviceptr p = 0;
    *out = NULL;
    if (!d) return CODA_E_DEVICE;
    memcpy(&of, handle, sizeof of);
    CUresult r = d->cuIpcOpenMemHandle_v2(&p, of, CU_IPC_MEM_LAZY_ENABLE_PEER_ACCESS);
    if (r) return driver_fail(d, err, r, "cuIpcOpenMemHandle");
    return *out = (void *)p, CODA_OK;
}

void jit_ipc_close(void *p)
{
    char err[JIT_ERROR_SIZE];
    const struct driver *d = p ? driver_open(err) : NULL;
    if (d) d->cuIpcCloseMemHandle((CUdeviceptr)p);
}

coda_status jit_copy(void *to, const void *from, size_t bytes, coda_stream stream, char *err)
{
    const struct driver *d = driver_open(err);
    if (!d) return CODA_E_DEVICE;
    CUresult r = d->cuMemcpyDtoDAsync_v2((CUdeviceptr)to, (CUdeviceptr)from, bytes, stream);
    return r ? driver_fail(d, err, r, "cuMemcpyDtoDAsync") : CODA_OK;
}

coda_status jit_poke(void *to, uint32_t word)
{
    char err[JIT_ERROR_SIZE];
    CUstreamCaptureMode mode = CU_STREAM_CAPTURE_MODE_RELAXED;
    const struct driver *d = driver_open(err);
    if (!d) return CODA_E_DEVICE;
    d->cuThreadExchangeStreamCaptureMode(&mode);
    CUresult r = d->cuMemcpyHtoD_v2((CUdeviceptr)to, &word, sizeof word);
    d->cuThreadExchangeStreamCaptureMode(&mode);
    return r ? CODA_E_DEVICE : CODA_OK;
}

/* Where the system has no random number, the clock and the process's own. */
static uint64_t drawn(void)
{
    uint64_t n = 0;
    struct timespec t;
    if (getrandom(&n, sizeof n, GRND_NONBLOCK) == (ssize_t)sizeof n) return n | 1;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return ((uint64_t)t.tv_nsec << 32 ^ (uint64_t)t.tv_sec << 20 ^ (uint64_t)getpid()) | 1;
}

/* A child of a fork is another process. */
uint64_t jit_process(void)
{
    static _Atomic uint64_t number;
    uint64_t none = 0;
    atomic_compare_exchange_strong(&number, &none, drawn());
    return atomic_load(&number) * 0x9e3779b97f4a7c15u + (uint64_t)getpid();
}

uint64_t jit_host(void)
{
    char boot[64] = "";
    struct stat processes;
    uint64_t h = 0xcbf29ce484222325u;
    int fd = open("/proc/sys/kernel/random/boot_id", O_RDONLY | O_CLOEXEC);
    ssize_t n = fd < 0 ? -1 : read(fd, boot, sizeof boot);
    if (fd >= 0) close(fd);
    if (n <= 0 || stat("/proc/self/ns/pid", &processes)) return jit_process();
    for (ssize_t i = 0; i < n; i++) h = (h ^ (unsigned char)boot[i]) * 0x100000001b3u;
    return (h ^ (uint64_t)processes.st_ino) * 0x100000001b3u;
}

/* ---- The host's ---- */

coda_status jit_host_alloc(void **out, size_t bytes, char *err)
{
    const struct driver *d = driver_open(err);
    *out = NULL;
    if (!d) return CODA_E_DEVICE;
    CUresult r = d->cuMemAllocHost_v2(out, bytes);
    if (r) return driver_fail(d, err, r, "cuMemAllocHost");
    memset(*out, 0, bytes);
    return CODA_OK;
}

void jit_host_free(void *p)
{
    char err[JIT_ERROR_SIZE];
    const struct driver *d = p ? driver_open(err) : NULL;
    if (d) d->cuMemFreeHost(p);
}
