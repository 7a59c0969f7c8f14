/*
 * cuda.c -- the functions of the driver that libcoda uses, over one or two devices of the board's archs.
 *
 * An image that is not byte for byte what the compiler gives for the source in it is counted as wrong,
 * and refused as a driver refuses it. A launch writes two bytes, which only its source gives, to each
 * typed output pointer, so that outputs can be compared. "Device" memory is the host's.
 */
#include "fake.h"

#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "beside.h"

/* The questions a test asks of this process's driver; found with dlsym. */
int fake_live(void);                                 /* libraries loaded now */
bool fake_holds(const char *text, const char *arch); /* is one of them made of this source? */
uint64_t fake_maker(const char *text);               /* what its primitives were; 0: none */

struct CUlib_st {
    struct CUlib_st *next;
    struct fake_image *image;
    struct fake_fields fields;
};

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static struct CUlib_st *live;
static char context[FAKE_DEVICES]; /* their addresses are the contexts */
static _Thread_local CUcontext stack[8];
static _Thread_local int depth;

/* A child of fork() may use the driver, which a real one forbids. */
static void hold(void) { pthread_mutex_lock(&lock); }
static void let_go(void) { pthread_mutex_unlock(&lock); }
__attribute__((constructor)) static void watch_forks(void) { pthread_atfork(hold, let_go, let_go); }

/* ---- Devices and contexts ---- */

static int devices(void)
{
    int n = atomic_load(&fake_board()->devices);
    return n < 1 ? 1 : n > FAKE_DEVICES ? FAKE_DEVICES : n;
}

static int arch_of(CUdevice d)
{
    int a = atomic_load(&fake_board()->arch[d]);
    return a ? a : 90;
}

static CUcontext current(void) { return stack[depth]; }
static CUdevice device_of(CUcontext c) { return (CUdevice)((char *)c - context); }

CUresult cuInit(unsigned flags) { return flags ? CUDA_ERROR_INVALID_VALUE : CUDA_SUCCESS; }
CUresult cuDriverGetVersion(int *v) { return *v = 13000, CUDA_SUCCESS; }

CUresult cuGetErrorName(CUresult r, const char **out)
{
    *out = r == CUDA_ERROR_INVALID_IMAGE       ? "CUDA_ERROR_INVALID_IMAGE"
           : r == CUDA_ERROR_NO_BINARY_FOR_GPU ? "CUDA_ERROR_NO_BINARY_FOR_GPU"
                                               : "CUDA_ERROR_OF_THE_FAKE_DRIVER";
    return CUDA_SUCCESS;
}

CUresult cuGetErrorString(CUresult r, const char **out)
{
    (void)r;
    return *out = "the fake driver was told to", CUDA_SUCCESS;
}

CUresult cuDeviceGet(CUdevice *out, int i)
{
    if (i < 0 || i >= devices()) return CUDA_ERROR_INVALID_DEVICE;
    return *out = i, CUDA_SUCCESS;
}

CUresult cuDeviceGetName(char *out, int size, CUdevice d)
{
    snprintf(out, (size_t)size, "fake device %d of sm_%d", d, arch_of(d));
    return CUDA_SUCCESS;
}

CUresult cuDeviceTotalMem_v2(size_t *out, CUdevice d)
{
    (void)d;
    return *out = (size_t)1 << 37, CUDA_SUCCESS;
}

CUresult cuDeviceGetAttribute(int *out, CUdevice_attribute a, CUdevice d)
{
    switch ((int)a) {
    case CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MAJOR: *out = arch_of(d) / 10; break;
    case CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MINOR: *out = arch_of(d) % 10; break;
    case CU_DEVICE_ATTRIBUTE_MULTIPROCESSOR_COUNT: *out = 132; break;
    case CU_DEVICE_ATTRIBUTE_MAX_SHARED_MEMORY_PER_BLOCK_OPTIN: *out = 232448; break;
    default: *out = 0;
    }
    return CUDA_SUCCESS;
}

CUresult cuDevicePrimaryCtxRetain(CUcontext *out, CUdevice d)
{
    return *out = (CUcontext)(void *)&context[d], CUDA_SUCCESS;
}

CUresult cuCtxGetCurrent(CUcontext *out) { return *out = current(), CUDA_SUCCESS; }
CUresult cuCtxSetCurrent(CUcontext c) { return stack[depth] = c, CUDA_SUCCESS; }

CUresult cuCtxGetDevice(CUdevice *out)
{
    if (!current()) return CUDA_ERROR_INVALID_CONTEXT;
    return *out = device_of(current()), CUDA_SUCCESS;
}

CUresult cuCtxGetId(CUcontext c, unsigned long long *out)
{
    if (!c && !(c = current())) return CUDA_ERROR_INVALID_CONTEXT;
    return *out = 1 + (unsigned long long)device_of(c), CUDA_SUCCESS;
}

CUresult cuCtxPushCurrent_v2(CUcontext c)
{
    if (depth == 7) return CUDA_ERROR_OUT_OF_MEMORY;
    return stack[++depth] = c, CUDA_SUCCESS;
}

CUresult cuCtxPopCurrent_v2(CUcontext *out)
{
    if (!depth) return CUDA_ERROR_INVALID_CONTEXT;
    return *out = stack[depth--], CUDA_SUCCESS;
}

CUresult cuCtxSynchronize(void) { return CUDA_SUCCESS; }
CUresult cuDeviceCanAccessPeer(int *can, CUdevice d, CUdevice other)
{
    return *can = d != other, CUDA_SUCCESS;
}
CUresult cuCtxEnablePeerAccess(CUcontext other, unsigned flags)
{
    return !other || flags || !current() ? CUDA_ERROR_INVALID_CONTEXT : CUDA_SUCCESS;
}
CUresult cuIpcGetMemHandle(CUipcMemHandle *out, CUdeviceptr p)
{
    return (void)out, (void)p, CUDA_ERROR_INVALID_VALUE;
}
CUresult cuIpcOpenMemHandle_v2(CUdeviceptr *out, CUipcMemHandle handle, unsigned flags)
{
    return (void)out, (void)handle, (void)flags, CUDA_ERROR_INVALID_VALUE;
}
CUresult cuIpcCloseMemHandle(CUdeviceptr p) { return (void)p, CUDA_ERROR_INVALID_VALUE; }

/* ---- Images ---- */

static bool told_to_refuse(struct fake_board *b)
{
    int n = atomic_load(&b->refuse);
    while (n > 0 && !atomic_compare_exchange_weak(&b->refuse, &n, n - 1)) {}
    return n != 0;
}

/* Is it for the device of this thread's context, if it has one? */
static bool fits(const struct fake_image *i)
{
    return !current() || atoi(i->arch + 3) == arch_of(device_of(current()));
}

CUresult cuLibraryLoadData(CUlibrary *out, const void *data, CUjit_option *jo, void **jv, unsigned nj,
                           CUlibraryOption *lo, void **lv, unsigned nl)
{
    (void)jo, (void)jv, (void)nj, (void)lo, (void)lv, (void)nl;
    struct fake_board *b = fake_board();
    struct fake_image head;
    atomic_fetch_add(&b->loads, 1);
    if (told_to_refuse(b)) return atomic_fetch_add(&b->refused, 1), CUDA_ERROR_INVALID_IMAGE;
    if (!fake_image_good(data)) return atomic_fetch_add(&b->wrong, 1), CUDA_ERROR_INVALID_IMAGE;
    memcpy(&head, data, sizeof head);
    if (!fits(&head)) return atomic_fetch_add(&b->wrong, 1), CUDA_ERROR_NO_BINARY_FOR_GPU;
    struct CUlib_st *l = calloc(1, sizeof *l);
    if (!l || !(l->image = malloc(head.total))) return free(l), CUDA_ERROR_OUT_OF_MEMORY;
    memcpy(l->image, data, head.total);
    l->fields = fake_image_fields(l->image);
    pthread_mutex_lock(&lock);
    l->next = live;
    live = l;
    pthread_mutex_unlock(&lock);
    return *out = l, CUDA_SUCCESS;
}

/* Is `l` loaded? Takes it out of the list if told to. */
static bool find_library(const struct CUlib_st *l, bool take)
{
    pthread_mutex_lock(&lock);
    struct CUlib_st **at = &live;
    while (*at && *at != l) at = &(*at)->next;
    bool found = *at;
    if (found && take) *at = l->next;
    pthread_mutex_unlock(&lock);
    return found;
}

CUresult cuLibraryUnload(CUlibrary l)
{
    struct fake_board *b = fake_board();
    if (!find_library(l, true)) return atomic_fetch_add(&b->bad_launches, 1), CUDA_ERROR_INVALID_HANDLE;
    atomic_fetch_add(&b->unloads, 1);
    free(l->image);
    free(l);
    return CUDA_SUCCESS;
}

int fake_live(void)
{
    int n = 0;
    pthread_mutex_lock(&lock);
    for (struct CUlib_st *l = live; l; l = l->next) n++;
    pthread_mutex_unlock(&lock);
    return n;
}

/* A digest of what the image of a source was made with: primitives, options, compiler. */
static uint64_t find_text(const char *text, const char *arch)
{
    uint64_t maker = 0;
    pthread_mutex_lock(&lock);
    for (struct CUlib_st *l = live; l && !maker; l = l->next) {
        const struct fake_image *i = l->image;
        if (strcmp(fake_image_text(i), text) || (arch && strcmp(i->arch, arch))) continue;
        maker = fake_digest(i->headers + i->version, fake_image_text(i) + i->text, i->options);
    }
    pthread_mutex_unlock(&lock);
    return maker;
}

bool fake_holds(const char *text, const char *arch) { return find_text(text, arch); }
uint64_t fake_maker(const char *text) { return find_text(text, NULL); }

/* ---- Kernels: the library itself ---- */

CUresult cuLibraryGetKernel(CUkernel *out, CUlibrary l, const char *name)
{
    if (!find_library(l, false)) return CUDA_ERROR_INVALID_HANDLE;
    if (!strstr(fake_image_text(l->image), name)) return CUDA_ERROR_NOT_FOUND;
    return *out = (CUkernel)(void *)l, CUDA_SUCCESS;
}

CUresult cuKernelGetFunction(CUfunction *out, CUkernel k)
{
    struct CUlib_st *l = (struct CUlib_st *)(void *)k;
    if (!fits(l->image)) return CUDA_ERROR_NO_BINARY_FOR_GPU;
    return *out = (CUfunction)(void *)k, CUDA_SUCCESS;
}

CUresult cuKernelSetAttribute(CUfunction_attribute a, int value, CUkernel k, CUdevice d)
{
    (void)a, (void)value, (void)k, (void)d;
    return CUDA_SUCCESS;
}

CUresult cuKernelGetParamInfo(CUkernel k, size_t i, size_t *offset, size_t *size)
{
    struct CUlib_st *l = (struct CUlib_st *)(void *)k;
    *offset = 0;
    *size = l->fields.parameters;
    return i ? CUDA_ERROR_INVALID_VALUE : CUDA_SUCCESS;
}

CUresult cuFuncLoad(CUfunction f) { return f ? CUDA_SUCCESS : CUDA_ERROR_INVALID_HANDLE; }

CUresult cuLaunchKernelEx(const CUlaunchConfig *c, CUfunction f, void **params, void **extra)
{
    struct CUlib_st *l = (struct CUlib_st *)(void *)f;
    struct fake_board *b = fake_board();
    if (!current()) return CUDA_ERROR_INVALID_CONTEXT;
    if (extra || !c->gridDimX || !c->blockDimX || !find_library(l, false) || !fits(l->image))
        return atomic_fetch_add(&b->bad_launches, 1), CUDA_ERROR_INVALID_HANDLE;
    if (atomic_load(&b->failing_launch) && atomic_fetch_sub(&b->failing_launch, 1) == 1)
        return CUDA_ERROR_LAUNCH_OUT_OF_RESOURCES;
    atomic_fetch_add(&b->launches, 1);
    int next = 1;
    if (atomic_compare_exchange_strong(&b->hold_launch, &next, 2))
        while (atomic_load(&b->hold_launch)) usleep(200);
    uint64_t digest = fake_digest(l->image->headers, fake_image_text(l->image), l->image->text);
    digest |= 1; /* a mark: what is there now is 0 */
    for (int i = 0; i < l->fields.n; i++) {
        void *to;
        memcpy(&to, (char *)params[0] + l->fields.field[i].offset, sizeof to);
        if (l->fields.field[i].written && to) memcpy(to, &digest, 2);
    }
    return CUDA_SUCCESS;
}

CUresult cuTensorMapEncodeTiled(CUtensorMap *map, CUtensorMapDataType type, cuuint32_t rank, void *address,
                                const cuuint64_t *dim, const cuuint64_t *stride, const cuuint32_t *box,
                                const cuuint32_t *step, CUtensorMapInterleave interleave,
                                CUtensorMapSwizzle swizzle, CUtensorMapL2promotion promotion,
                                CUtensorMapFloatOOBfill fill)
{
    (void)type, (void)rank, (void)dim, (void)stride, (void)box, (void)step;
    (void)interleave, (void)swizzle, (void)promotion, (void)fill;
    memset(map, 0, sizeof *map);
    return cuTensorMapReplaceAddress(map, address);
}

CUresult cuTensorMapReplaceAddress(CUtensorMap *map, void *address)
{
    memcpy(map, &address, sizeof address);
    return CUDA_SUCCESS;
}

/* ---- Memory, for the tests that bring arguments ---- */

CUresult cuMemAlloc_v2(CUdeviceptr *out, size_t size)
{
    void *p = aligned_alloc(256, (size + 255) / 256 * 256);
    return *out = (CUdeviceptr)(uintptr_t)p, p ? CUDA_SUCCESS : CUDA_ERROR_OUT_OF_MEMORY;
}

/* It counts none. */
CUresult cuPointerGetAttribute(void *out, CUpointer_attribute a, CUdeviceptr p)
{
    (void)out, (void)a, (void)p;
    return CUDA_ERROR_INVALID_VALUE;
}

CUresult cuMemFree_v2(CUdeviceptr p) { return free((void *)(uintptr_t)p), CUDA_SUCCESS; }

CUresult cuMemAllocHost_v2(void **out, size_t size)
{
    return *out = malloc(size + !size), *out ? CUDA_SUCCESS : CUDA_ERROR_OUT_OF_MEMORY;
}

CUresult cuMemFreeHost(void *p) { return free(p), CUDA_SUCCESS; }

CUresult cuMemcpyHtoD_v2(CUdeviceptr to, const void *from, size_t size)
{
    return memcpy((void *)(uintptr_t)to, from, size), CUDA_SUCCESS;
}

CUresult cuMemGetInfo_v2(size_t *left, size_t *all) { return *left = *all = (size_t)1 << 37, CUDA_SUCCESS; }

CUresult cuMemcpyDtoD_v2(CUdeviceptr to, CUdeviceptr from, size_t size)
{
    return memcpy((void *)(uintptr_t)to, (const void *)(uintptr_t)from, size), CUDA_SUCCESS;
}

CUresult cuMemcpyDtoDAsync_v2(CUdeviceptr to, CUdeviceptr from, size_t size, CUstream s)
{
    (void)s;
    return cuMemcpyDtoD_v2(to, from, size);
}

CUresult cuMemcpyDtoH_v2(void *to, CUdeviceptr from, size_t size)
{
    return memcpy(to, (const void *)(uintptr_t)from, size), CUDA_SUCCESS;
}

CUresult cuMemsetD8_v2(CUdeviceptr to, unsigned char byte, size_t size)
{
    return memset((void *)(uintptr_t)to, byte, size), CUDA_SUCCESS;
}
