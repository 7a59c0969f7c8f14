/*
 * driver.c -- the functions of the driver that libcoda and its tests use, over the emulated machine.
 *
 * A "cubin" is what nvrtc.c made: a shared object, loaded with dlopen. Streams run at once (stream.c).
 *     CODA_EMULATOR_SMS   how many the device says it has, 4 without it: few, so that persistent
 *                         kernels walk over several tiles
 *     CODA_EMULATOR_DEVICES   how many devices there are, 1 without it; 64 at most
 *     CODA_SEED           of all that is drawn, 1 without it
 *     CODA_STALE          loads that do not wait see nothing of what kernels since the last ordinary
 *                         launch write
 */
#include "driver_inside.h"

#include <dlfcn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

static char context[MOST_CONTEXTS];                            /* their addresses are the contexts */
static int made, device_of_made[MOST_CONTEXTS - MOST_DEVICES]; /* by cuCtxCreate */
static _Thread_local CUcontext stack[8];
static _Thread_local int depth;
static char last_message[MESSAGE + 64] = "none";

/* ---- Devices and contexts ---- */

/* Kernels call this library by its functions' names, so these must be visible to all. */
CUresult cuInit(unsigned flags)
{
    Dl_info info;
    if (flags || !dladdr((void *)(uintptr_t)cuInit, &info)) return CUDA_ERROR_INVALID_VALUE;
    return dlopen(info.dli_fname, RTLD_NOW | RTLD_NOLOAD | RTLD_GLOBAL) ? CUDA_SUCCESS : CUDA_ERROR_UNKNOWN;
}
CUresult cuDriverGetVersion(int *v) { return *v = 13000, CUDA_SUCCESS; }

CUresult cuGetErrorName(CUresult r, const char **out)
{
    *out = r == CUDA_ERROR_INVALID_IMAGE     ? "CUDA_ERROR_INVALID_IMAGE"
           : r == CUDA_ERROR_NOT_FOUND       ? "CUDA_ERROR_NOT_FOUND"
           : r == CUDA_ERROR_LAUNCH_FAILED   ? "CUDA_ERROR_LAUNCH_FAILED"
           : r == CUDA_ERROR_INVALID_CONTEXT ? "CUDA_ERROR_INVALID_CONTEXT"
           : r == CUDA_ERROR_OUT_OF_MEMORY   ? "CUDA_ERROR_OUT_OF_MEMORY"
                                             : "CUDA_ERROR_OF_THE_EMULATOR";
    return CUDA_SUCCESS;
}

CUresult cuGetErrorString(CUresult r, const char **out)
{
    *out = r == CUDA_ERROR_LAUNCH_FAILED || r == CUDA_ERROR_INVALID_IMAGE ? last_message : "no more is known";
    return CUDA_SUCCESS;
}

CUresult emulator_fail(CUresult r, const char *message)
{
    snprintf(last_message, sizeof last_message, "%s", message);
    return r;
}

static int devices(void)
{
    const char *s = getenv("CODA_EMULATOR_DEVICES");
    int n = s ? atoi(s) : 0;
    return n < 1 ? 1 : n < MOST_DEVICES ? n : MOST_DEVICES;
}

CUresult cuDeviceGet(CUdevice *out, int i)
{
    return *out = i, i < 0 || i >= devices() ? CUDA_ERROR_INVALID_DEVICE : CUDA_SUCCESS;
}

CUresult cuDeviceGetName(char *out, int size, CUdevice d)
{
    (void)d;
    snprintf(out, (size_t)size, "emulated Hopper");
    return CUDA_SUCCESS;
}

CUresult cuDeviceTotalMem_v2(size_t *out, CUdevice d)
{
    return (void)d, *out = (size_t)1 << 34, CUDA_SUCCESS;
}

static int sms(void)
{
    const char *s = getenv("CODA_EMULATOR_SMS");
    int n = s ? atoi(s) : 0;
    return n > 0 ? n : 4;
}

CUresult cuDeviceGetAttribute(int *out, CUdevice_attribute a, CUdevice d)
{
    (void)d;
    switch ((int)a) {
    case CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MAJOR: *out = 9; break;
    case CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MINOR: *out = 0; break;
    case CU_DEVICE_ATTRIBUTE_MULTIPROCESSOR_COUNT: *out = sms(); break;
    case CU_DEVICE_ATTRIBUTE_MAX_SHARED_MEMORY_PER_BLOCK_OPTIN: *out = SHARED_MOST; break;
    default: *out = 0;
    }
    return CUDA_SUCCESS;
}

static int number_of(CUcontext c) { return c ? (int)((char *)c - context) : -1; }
int current_context(void) { return number_of(stack[depth]); }
static int device_of(int number)
{
    return number < MOST_DEVICES ? number : device_of_made[number - MOST_DEVICES];
}

CUresult cuDevicePrimaryCtxRetain(CUcontext *out, CUdevice d)
{
    if (d < 0 || d >= devices()) return CUDA_ERROR_INVALID_DEVICE;
    return *out = (CUcontext)(void *)&context[d], CUDA_SUCCESS;
}
/* Of a device that has one already, too: its memory and its default stream are its own. */
CUresult cuCtxCreate_v2(CUcontext *out, unsigned flags, CUdevice d);
CUresult cuCtxCreate_v2(CUcontext *out, unsigned flags, CUdevice d)
{
    int n = __atomic_fetch_add(&made, 1, __ATOMIC_RELAXED);
    if (flags || d < 0 || d >= devices()) return CUDA_ERROR_INVALID_VALUE;
    if (n >= MOST_CONTEXTS - MOST_DEVICES) return CUDA_ERROR_OUT_OF_MEMORY;
    device_of_made[n] = d;
    *out = (CUcontext)(void *)&context[MOST_DEVICES + n];
    return cuCtxPushCurrent_v2(*out);
}
CUresult cuCtxGetCurrent(CUcontext *out) { return *out = stack[depth], CUDA_SUCCESS; }
/* Of none the thread has the one before. */
CUresult cuCtxSetCurrent(CUcontext c)
{
    if (c || !depth) stack[depth] = c;
    else depth--;
    return CUDA_SUCCESS;
}
CUresult cuCtxGetDevice(CUdevice *out)
{
    return *out = device_of(current_context()), stack[depth] ? CUDA_SUCCESS : CUDA_ERROR_INVALID_CONTEXT;
}
CUresult cuCtxGetId(CUcontext c, unsigned long long *out)
{
    *out = 1 + (unsigned long long)number_of(c ? c : stack[depth]);
    return c || stack[depth] ? CUDA_SUCCESS : CUDA_ERROR_INVALID_CONTEXT;
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
CUresult cuCtxSynchronize(void) { return transfers_finish(), CUDA_SUCCESS; }

CUresult cuDeviceCanAccessPeer(int *can, CUdevice d, CUdevice other)
{
    return *can = d != other && !getenv("CODA_EMULATOR_NO_PEERS"), CUDA_SUCCESS;
}
CUresult cuCtxEnablePeerAccess(CUcontext other, unsigned flags)
{
    int to = number_of(other);
    if (flags || !stack[depth] || device_of(to) == device_of(current_context()))
        return CUDA_ERROR_INVALID_VALUE;
    if (getenv("CODA_EMULATOR_NO_PEERS")) return CUDA_ERROR_PEER_ACCESS_UNSUPPORTED;
    if (peers_allowed(current_context(), to)) return CUDA_ERROR_PEER_ACCESS_ALREADY_ENABLED;
    return peers_allow(current_context(), to), CUDA_SUCCESS;
}

/* As the driver, not in the process that has it. */
CUresult cuIpcGetMemHandle(CUipcMemHandle *out, CUdeviceptr p)
{
    return device_share((void *)(uintptr_t)p, out) ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE;
}
CUresult cuIpcOpenMemHandle_v2(CUdeviceptr *out, CUipcMemHandle handle, unsigned flags)
{
    int of = 0;
    if (flags != CU_IPC_MEM_LAZY_ENABLE_PEER_ACCESS || !stack[depth]) return CUDA_ERROR_INVALID_VALUE;
    if (getenv("CODA_EMULATOR_NO_PEERS")) return CUDA_ERROR_PEER_ACCESS_UNSUPPORTED;
    void *p = device_adopt(&handle, &of);
    if (p && of != current_context()) peers_allow(current_context(), of);
    return *out = (CUdeviceptr)(uintptr_t)p, p ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE;
}
CUresult cuIpcCloseMemHandle(CUdeviceptr p) { return cuMemFree_v2(p); }

/* ---- Libraries and kernels ---- */

struct CUlib_st {
    void *handle;
    int file; /* stays open: the loader takes files of one name for the same */
    struct emulated_kernel kernel;
    char symbol[256];
};

static bool open_library(struct CUlib_st *l, const struct emulated_image *image)
{
    char path[64];
    l->file = memfd_create("kernel", MFD_CLOEXEC);
    if (l->file < 0 || write(l->file, image + 1, image->bytes) != (ssize_t)image->bytes) return false;
    snprintf(path, sizeof path, "/proc/self/fd/%d", l->file);
    l->handle = dlopen(path, RTLD_NOW | RTLD_LOCAL);
    if (!l->handle) emulator_fail(CUDA_ERROR_INVALID_IMAGE, dlerror());
    return l->handle;
}

CUresult cuLibraryLoadData(CUlibrary *out, const void *data, CUjit_option *jo, void **jv, unsigned nj,
                           CUlibraryOption *lo, void **lv, unsigned nl)
{
    (void)jo, (void)jv, (void)nj, (void)lo, (void)lv, (void)nl;
    struct emulated_image image;
    memcpy(&image, data, sizeof image);
    if (memcmp(image.magic, EMULATED_IMAGE, sizeof image.magic))
        return emulator_fail(CUDA_ERROR_INVALID_IMAGE, "an image that the emulator's NVRTC did not make");
    struct CUlib_st *l = calloc(1, sizeof *l);
    if (!l) return CUDA_ERROR_OUT_OF_MEMORY;
    if (open_library(l, data)) return *out = l, CUDA_SUCCESS;
    cuLibraryUnload(l);
    return CUDA_ERROR_INVALID_IMAGE;
}

CUresult cuLibraryUnload(CUlibrary l)
{
    if (l->handle) dlclose(l->handle);
    if (l->file >= 0) close(l->file);
    free(l);
    return CUDA_SUCCESS;
}

CUresult cuLibraryGetKernel(CUkernel *out, CUlibrary l, const char *name)
{
    char symbol[300];
    snprintf(symbol, sizeof symbol, "emu_kernel_%s", name);
    l->kernel.entry = dlsym(l->handle, symbol);
    snprintf(l->symbol, sizeof l->symbol, "%s", name);
    l->kernel.name = l->symbol;
    *out = (CUkernel)(void *)&l->kernel;
    return l->kernel.entry ? CUDA_SUCCESS : CUDA_ERROR_NOT_FOUND;
}

CUresult cuKernelGetFunction(CUfunction *out, CUkernel k)
{
    return *out = (CUfunction)(void *)k, CUDA_SUCCESS;
}

CUresult cuKernelSetAttribute(CUfunction_attribute a, int value, CUkernel k, CUdevice d)
{
    (void)d;
    if (a == CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES)
        ((struct emulated_kernel *)(void *)k)->shared_limit = (unsigned)value;
    return CUDA_SUCCESS;
}

CUresult cuKernelGetParamInfo(CUkernel k, size_t i, size_t *offset, size_t *size)
{
    *offset = 0;
    *size = ((struct emulated_kernel *)(void *)k)->entry->parameters;
    return i ? CUDA_ERROR_INVALID_VALUE : CUDA_SUCCESS;
}

CUresult cuFuncLoad(CUfunction f) { return f ? CUDA_SUCCESS : CUDA_ERROR_INVALID_HANDLE; }

/* ---- Launches ---- */

static uint64_t seed(void)
{
    const char *s = getenv("CODA_SEED");
    return s ? strtoull(s, NULL, 0) : 1;
}

static bool is_stale(void) { return getenv("CODA_STALE"); }

/* A kernel reaches memory of its own context, and of those that this has access to. */
static bool reaches_parameters(struct launch *l, size_t bytes)
{
    for (size_t i = 0; i + sizeof(void *) <= bytes; i += sizeof(void *)) {
        void *p;
        memcpy(&p, (const char *)l->parameters + i, sizeof p);
        int other = context_of(p);
        if (other < 0 || other == l->context || peers_allowed(l->context, other)) continue;
        snprintf(l->message, sizeof l->message, "%s: a pointer of context %d in a launch in context %d",
                 l->name, other, l->context);
        return false;
    }
    return true;
}

CUresult emulator_run(const struct emulated_kernel *k, const void *parameters, struct emulated_launch what)
{
    static unsigned launches;
    char message[MESSAGE + 64];
    struct launch l = {.kernel = k->entry,
                       .name = k->name,
                       .parameters = parameters,
                       .grid = what.grid,
                       .threads = what.threads,
                       .shared = what.shared,
                       .context = what.context,
                       .number = __atomic_add_fetch(&launches, 1, __ATOMIC_RELAXED),
                       .seed = seed(),
                       .lock = PTHREAD_MUTEX_INITIALIZER};
    if (what.shared > 48 << 10 && what.shared > k->shared_limit)
        return emulator_fail(CUDA_ERROR_LAUNCH_FAILED, "more shared memory than the kernel's limit");
    if (devices() + made > 1 && !reaches_parameters(&l, k->entry->parameters))
        return emulator_fail(CUDA_ERROR_LAUNCH_FAILED, l.message);
    if (!what.early && is_stale()) device_remember(l.context);
    if (run_launch(&l)) return CUDA_SUCCESS;
    snprintf(message, sizeof message, "%s (seed %llu, launch %u)", l.message, (unsigned long long)l.seed,
             l.number);
    return emulator_fail(CUDA_ERROR_LAUNCH_FAILED, message);
}

CUresult cuLaunchKernelEx(const CUlaunchConfig *c, CUfunction f, void **params, void **extra)
{
    const struct emulated_kernel *k = (const struct emulated_kernel *)(void *)f;
    if (stream_context(c->hStream) < 0) return CUDA_ERROR_INVALID_CONTEXT;
    if (extra || c->gridDimY != 1 || c->gridDimZ != 1 || c->blockDimY != 1 || c->blockDimZ != 1)
        return CUDA_ERROR_INVALID_VALUE;
    struct emulated_launch l = {c->gridDimX, c->blockDimX, c->sharedMemBytes, c->numAttrs,
                                stream_context(c->hStream)};
    if (stream_is_barred(c->hStream)) return CUDA_ERROR_STREAM_CAPTURE_IMPLICIT;
    if (stream_records(c->hStream)) return stream_record(c->hStream, k, params[0], l);
    stream_wait_default(c->hStream);
    return emulator_run(k, params[0], l);
}

/* ---- Tensor maps ---- */

static int element_bytes(CUtensorMapDataType t)
{
    switch (t) {
    case CU_TENSOR_MAP_DATA_TYPE_FLOAT32:
    case CU_TENSOR_MAP_DATA_TYPE_INT32: return 4;
    case CU_TENSOR_MAP_DATA_TYPE_INT64: return 8;
    case CU_TENSOR_MAP_DATA_TYPE_BFLOAT16:
    case CU_TENSOR_MAP_DATA_TYPE_FLOAT16: return 2;
    case CU_TENSOR_MAP_DATA_TYPE_UINT8: return 1;
    default: return 0;
    }
}

static int swizzle_bytes(CUtensorMapSwizzle s)
{
    switch (s) {
    case CU_TENSOR_MAP_SWIZZLE_32B: return 32;
    case CU_TENSOR_MAP_SWIZZLE_64B: return 64;
    case CU_TENSOR_MAP_SWIZZLE_128B: return 128;
    default: return 0;
    }
}

/* A swizzled box has rows of the swizzle's width: what shorter ones do is not modelled. */
CUresult cuTensorMapEncodeTiled(CUtensorMap *out, CUtensorMapDataType type, cuuint32_t rank, void *address,
                                const cuuint64_t *dim, const cuuint64_t *stride, const cuuint32_t *box,
                                const cuuint32_t *step, CUtensorMapInterleave interleave,
                                CUtensorMapSwizzle swizzle, CUtensorMapL2promotion promotion,
                                CUtensorMapFloatOOBfill fill)
{
    (void)promotion;
    if (!stack[depth]) return CUDA_ERROR_INVALID_CONTEXT;
    struct map m = {.magic = MAP_MAGIC, .address = (uintptr_t)address, .rank = (uint8_t)rank};
    m.element = (uint8_t)element_bytes(type);
    m.swizzle = (uint8_t)swizzle_bytes(swizzle);
    if (!m.element || rank < 1 || rank > 5 || interleave || fill || (uintptr_t)address % 16)
        return CUDA_ERROR_INVALID_VALUE;
    for (unsigned d = 0; d < rank; d++) {
        if (!dim[d] || dim[d] > (cuuint64_t)1 << 32 || !box[d] || box[d] > 256 || step[d] != 1)
            return CUDA_ERROR_INVALID_VALUE;
        if (d && (stride[d - 1] % 16 || stride[d - 1] >> 40)) return CUDA_ERROR_INVALID_VALUE;
        m.last[d] = (uint32_t)(dim[d] - 1);
        m.box[d] = (uint8_t)(box[d] - 1);
        if (d) m.stride[d - 1] = stride[d - 1];
    }
    unsigned row = box[0] * m.element;
    if (row % 16 || (m.swizzle && row != m.swizzle)) return CUDA_ERROR_INVALID_VALUE;
    memset(out, 0, sizeof *out);
    memcpy(out, &m, sizeof m);
    return CUDA_SUCCESS;
}

CUresult cuTensorMapReplaceAddress(CUtensorMap *out, void *address)
{
    struct map m;
    memcpy(&m, out, sizeof m);
    if (m.magic != MAP_MAGIC || (uintptr_t)address % 16) return CUDA_ERROR_INVALID_VALUE;
    m.address = (uintptr_t)address;
    memcpy(out, &m, sizeof m);
    return CUDA_SUCCESS;
}

/* ---- Memory ---- */

static _Thread_local int until_none; /* allocations of this thread up to the one that fails; 0: none does */
void emu_fail_allocation(int number) { until_none = number; }
static bool is_out(void) { return until_none > 0 && !--until_none; }

CUresult cuMemAlloc_v2(CUdeviceptr *out, size_t size)
{
    if (!stack[depth]) return *out = 0, CUDA_ERROR_INVALID_CONTEXT;
    void *p = is_out() ? NULL : device_new(size, current_context());
    return *out = (CUdeviceptr)(uintptr_t)p, p ? CUDA_SUCCESS : CUDA_ERROR_OUT_OF_MEMORY;
}
CUresult cuMemFree_v2(CUdeviceptr p)
{
    transfers_finish();
    return !p || device_delete((void *)(uintptr_t)p) ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE;
}
CUresult cuPointerGetAttribute(void *out, CUpointer_attribute a, CUdeviceptr p)
{
    uint64_t number = a == CU_POINTER_ATTRIBUTE_BUFFER_ID ? device_allocation((void *)(uintptr_t)p) : 0;
    *(unsigned long long *)out = number;
    return number ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE;
}
/* Memory of the host is what it is. */
CUresult cuMemAllocHost_v2(void **out, size_t size)
{
    return *out = is_out() ? NULL : malloc(size + !size), *out ? CUDA_SUCCESS : CUDA_ERROR_OUT_OF_MEMORY;
}
CUresult cuMemFreeHost(void *p) { return free(p), CUDA_SUCCESS; }
CUresult cuMemGetInfo_v2(size_t *left, size_t *all)
{
    *all = (size_t)1 << 34;
    *left = *all - device_total();
    return CUDA_SUCCESS;
}
