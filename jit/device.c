/* device.c -- the GPU a plan is made for: the current context's, else device 0 and its primary context. */
#include <pthread.h>
#include <stdio.h>
#include <string.h>

#include "driver.h"

/* Device 0's primary context, retained once for the life of the process. */
static CUresult primary_context(const struct driver *d, CUcontext *out)
{
    static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
    static CUcontext primary;
    CUdevice device;
    CUresult r = CUDA_SUCCESS;
    pthread_mutex_lock(&lock);
    if (!primary) r = d->cuDeviceGet(&device, 0);
    if (!primary && !r) r = d->cuDevicePrimaryCtxRetain(&primary, device);
    *out = primary;
    pthread_mutex_unlock(&lock);
    return r;
}

/* The thread's context; a thread without one gets the primary context, as the CUDA runtime does it. */
static coda_status bind_context(const struct driver *d, CUcontext *context, char *err)
{
    CUresult r = d->cuCtxGetCurrent(context);
    if (r) return driver_fail(d, err, r, "cuCtxGetCurrent");
    if (*context) return CODA_OK;
    if ((r = primary_context(d, context))) return driver_fail(d, err, r, "the primary context of device 0");
    if ((r = d->cuCtxSetCurrent(*context))) return driver_fail(d, err, r, "cuCtxSetCurrent");
    return CODA_OK;
}

coda_status jit_device_enter(const struct jit_device *dev, char *err)
{
    const struct driver *d = driver_open(err);
    if (!d) return CODA_E_DEVICE;
    CUresult r = d->cuCtxPushCurrent_v2(dev->context);
    return r ? driver_fail(d, err, r, "cuCtxPushCurrent") : CODA_OK;
}

void jit_device_leave(void)
{
    char err[JIT_ERROR_SIZE];
    CUcontext popped;
    const struct driver *d = driver_open(err);
    if (d) d->cuCtxPopCurrent_v2(&popped);
}

bool jit_device_is_current(const struct jit_device *dev)
{
    char err[JIT_ERROR_SIZE];
    CUcontext current;
    const struct driver *d = driver_open(err);
    return d && !d->cuCtxGetCurrent(&current) && current == dev->context;
}

/* From 9.0 on, the arch-specific target: wgmma and setmaxnreg exist only there. */
static void print_arch(char *out, size_t size, int major, int minor)
{
    snprintf(out, size, "sm_%d%d%s", major, minor, major >= 9 ? "a" : "");
}

static int attribute(const struct driver *d, CUdevice device, CUdevice_attribute which)
{
    int value = 0;
    return d->cuDeviceGetAttribute(&value, which, device) || value < 0 ? 0 : value;
}

/* What prices of programs ask for, and do without where a driver does not know it. Memory sends twice in a
 * clock. */
static void read_rates(const struct driver *d, CUdevice device, struct jit_device *out)
{
    double khz = attribute(d, device, CU_DEVICE_ATTRIBUTE_MEMORY_CLOCK_RATE);
    out->memory_rate = 2e3 * khz * attribute(d, device, CU_DEVICE_ATTRIBUTE_GLOBAL_MEMORY_BUS_WIDTH) / 8;
    out->boost_mhz = attribute(d, device, CU_DEVICE_ATTRIBUTE_CLOCK_RATE) / 1000;
    out->l2_size = attribute(d, device, CU_DEVICE_ATTRIBUTE_L2_CACHE_SIZE);
}

static coda_status read_facts(const struct driver *d, CUdevice device, struct jit_device *out, char *err)
{
    int major = 0, minor = 0;
    const struct {
        CUdevice_attribute attribute;
        int *to;
    } facts[] = {
        {CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MAJOR, &major},
        {CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MINOR, &minor},
        {CU_DEVICE_ATTRIBUTE_MULTIPROCESSOR_COUNT, &out->sms},
        {CU_DEVICE_ATTRIBUTE_MAX_SHARED_MEMORY_PER_BLOCK_OPTIN, &out->shared_bytes},
    };
    CUresult r = d->cuDeviceGetName(out->name, sizeof out->name, device);
    if (!r) r = d->cuDriverGetVersion(&out->driver);
    if (!r) r = d->cuDeviceTotalMem_v2(&out->memory, device);
    for (size_t i = 0; !r && i < sizeof facts / sizeof *facts; i++)
        r = d->cuDeviceGetAttribute(facts[i].to, facts[i].attribute, device);
    if (r) return driver_fail(d, err, r, "the device's attributes");
    print_arch(out->arch, sizeof out->arch, major, minor);
    read_rates(d, device, out);
    return CODA_OK;
}

coda_status jit_device_open(struct jit_device *out, char *err)
{
    CUdevice device;
    CUcontext context;
    const struct driver *d = driver_open(err);
    *out = (struct jit_device){0};
    if (!d) return CODA_E_DEVICE;
    coda_status status = bind_context(d, &context, err);
    if (status) return status;
    CUresult r = d->cuCtxGetDevice(&device);
    if (r) return driver_fail(d, err, r, "cuCtxGetDevice");
    out->ordinal = device;
    out->context = context;
    return read_facts(d, device, out, err);
}

uint64_t jit_allocation(const void *p)
{
    char err[JIT_ERROR_SIZE];
    unsigned long long id = 0;
    const struct driver *d = driver_open(err);
    bool known = d && !d->cuPointerGetAttribute(&id, CU_POINTER_ATTRIBUTE_BUFFER_ID, (CUdeviceptr)p);
    return known ? id : 0;
}
