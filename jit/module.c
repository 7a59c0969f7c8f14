/*
 * module.c -- a cubin becomes a kernel that is ready: loaded, its shared memory limit set.
 *
 * Everything that may block, take the context's lock or wait for the GPU happens here, while the plan
 * is made, and nothing of it at the first launch. The caller's context is left as it was.
 */
#include "module.h"

#include <stdio.h>
#include <stdlib.h>

static coda_status fail_at(struct jit_kernel *k, CUresult r, const char *step, char *err)
{
    char what[192];
    k->failure = r;
    snprintf(what, sizeof what, "%s: %s", k->symbol, step);
    return driver_fail(k->driver, err, r, what);
}

static coda_status set_shared_limit(struct jit_kernel *k, CUkernel kernel, int bytes,
                                    const struct jit_device *dev, char *err)
{
    CUdevice device;
    if (bytes > dev->shared_bytes)
        return jit_fail(err, CODA_E_UNSUPPORTED, "%s: needs %d bytes of shared memory, %s has %d", k->symbol,
                        bytes, dev->name, dev->shared_bytes);
    CUresult r = k->driver->cuDeviceGet(&device, dev->ordinal);
    if (!r)
        r = k->driver->cuKernelSetAttribute(CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES, bytes, kernel,
                                            device);
    return r ? fail_at(k, r, "shared memory limit", err) : CODA_OK;
}

/* A kernel of ours has one parameter, a struct; its size is kept to check each launch against. */
static coda_status read_parameters(struct jit_kernel *k, CUkernel kernel, char *err)
{
    size_t offset;
    CUresult r = k->driver->cuKernelGetParamInfo(kernel, 0, &offset, &k->parameters);
    return r ? fail_at(k, r, "its parameter", err) : CODA_OK;
}

static coda_status force_load(struct jit_kernel *k, CUkernel kernel, char *err)
{
    CUfunction function;
    CUresult r = k->driver->cuKernelGetFunction(&function, kernel);
    if (!r) r = k->driver->cuFuncLoad(function);
    return r ? fail_at(k, r, "load", err) : CODA_OK;
}

static coda_status load(struct jit_kernel *k, const struct jit_cubin *c, int shared_bytes,
                        const struct jit_device *dev, char *err)
{
    CUkernel kernel;
    CUresult r = k->driver->cuLibraryLoadData(&k->library, c->image, NULL, NULL, 0, NULL, NULL, 0);
    if (r) return fail_at(k, r, "cuLibraryLoadData", err);
    r = k->driver->cuLibraryGetKernel(&kernel, k->library, k->symbol);
    if (r) return fail_at(k, r, "no such kernel in its cubin", err);
    coda_status status = read_parameters(k, kernel, err);
    if (!status) status = set_shared_limit(k, kernel, shared_bytes, dev, err);
    if (!status) status = force_load(k, kernel, err);
    k->function = (CUfunction)kernel;
    return status;
}

/* Errors that speak of the image, and not of the machine. A driver that loads lazily finds them late. */
static bool is_refusal(CUresult r)
{
    return r == CUDA_ERROR_INVALID_IMAGE || r == CUDA_ERROR_NO_BINARY_FOR_GPU || r == CUDA_ERROR_NOT_FOUND ||
           r == CUDA_ERROR_INVALID_SOURCE || r == CUDA_ERROR_UNSUPPORTED_PTX_VERSION ||
           r == CUDA_ERROR_INVALID_PTX;
}

coda_status module_load(struct jit_kernel *k, const struct jit_cubin *c, int shared_bytes,
                        const struct jit_device *dev, bool *refused, char *err)
{
    CUcontext popped;
    CUresult r = k->driver->cuCtxPushCurrent_v2(k->context);
    if (r) return fail_at(k, r, "cuCtxPushCurrent", err);
    coda_status status = load(k, c, shared_bytes, dev, err);
    *refused = status && is_refusal(k->failure);
    k->driver->cuCtxPopCurrent_v2(&popped);
    return status;
}

void jit_prefer_shared(const struct jit_kernel *k)
{
    CUdevice device;
    CUcontext popped;
    if (k->driver->cuCtxPushCurrent_v2(k->context)) return;
    if (!k->driver->cuCtxGetDevice(&device))
        k->driver->cuKernelSetAttribute(CU_FUNC_ATTRIBUTE_PREFERRED_SHARED_MEMORY_CARVEOUT, 100,
                                        (CUkernel)(void *)k->function, device);
    k->driver->cuCtxPopCurrent_v2(&popped);
}

void module_unload(struct jit_kernel *k)
{
    if (k->library) k->driver->cuLibraryUnload(k->library);
    cache_value_free(k->value);
    free(k);
}
