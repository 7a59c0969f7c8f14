/* peers.c -- what kernels of several devices of a process share: memory of each, which the others reach, and
 * memory of the host. */
#include <string.h>

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
