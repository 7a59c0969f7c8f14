/*
 * dry.c -- a driver for dry runs: it loads every image and launches nothing, so that a program plans and
 * compiles all that it would want on a card, with the real NVRTC, where there is none.
 *
 * It is the card that $DRY_CARD names (NVIDIA H200), of 132 SMs; libcoda takes the other numbers of a card
 * from its name. Memory is address space that nothing is copied to or from.
 */
#include <elf.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

#include "beside.h"
#include "dry.h"
#include "fake.h"

static char thing; /* its address stands for each context */
#define THING(type) ((type)(void *)&thing)
#define PAGE ((size_t)4096)

CUresult cuInit(unsigned flags) { return flags ? CUDA_ERROR_INVALID_VALUE : CUDA_SUCCESS; }
CUresult cuDriverGetVersion(int *v) { return *v = 13000, CUDA_SUCCESS; }
CUresult cuGetErrorName(CUresult r, const char **out) { return (void)r, *out = "CUDA_ERROR", CUDA_SUCCESS; }
CUresult cuGetErrorString(CUresult r, const char **out) { return (void)r, *out = "no error", CUDA_SUCCESS; }

/* ---- One device and its context ---- */

CUresult cuDeviceGet(CUdevice *out, int i) { return *out = i, i ? CUDA_ERROR_INVALID_DEVICE : CUDA_SUCCESS; }

CUresult cuDeviceGetName(char *out, int size, CUdevice d)
{
    const char *card = getenv("DRY_CARD");
    (void)d;
    snprintf(out, (size_t)size, "%s%s", card && *card ? card : "NVIDIA H200", DRY_SUFFIX);
    return CUDA_SUCCESS;
}

CUresult cuDeviceTotalMem_v2(size_t *out, CUdevice d)
{
    return (void)d, *out = (size_t)1 << 37, CUDA_SUCCESS;
}

CUresult cuDeviceGetAttribute(int *out, CUdevice_attribute a, CUdevice d)
{
    (void)d;
    switch ((int)a) {
    case CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MAJOR: *out = 9; break;
    case CU_DEVICE_ATTRIBUTE_MULTIPROCESSOR_COUNT: *out = 132; break;
    case CU_DEVICE_ATTRIBUTE_MAX_SHARED_MEMORY_PER_BLOCK_OPTIN: *out = 232448; break;
    default: *out = 0;
    }
    return CUDA_SUCCESS;
}

CUresult cuDevicePrimaryCtxRetain(CUcontext *out, CUdevice d)
{
    return (void)d, *out = THING(CUcontext), CUDA_SUCCESS;
}
CUresult cuCtxGetCurrent(CUcontext *out) { return *out = THING(CUcontext), CUDA_SUCCESS; }
CUresult cuCtxSetCurrent(CUcontext c) { return (void)c, CUDA_SUCCESS; }
CUresult cuCtxGetDevice(CUdevice *out) { return *out = 0, CUDA_SUCCESS; }
CUresult cuCtxGetId(CUcontext c, unsigned long long *out) { return (void)c, *out = 1, CUDA_SUCCESS; }
CUresult cuCtxPushCurrent_v2(CUcontext c) { return (void)c, CUDA_SUCCESS; }
CUresult cuCtxPopCurrent_v2(CUcontext *out) { return *out = THING(CUcontext), CUDA_SUCCESS; }
CUresult cuCtxSynchronize(void) { return CUDA_SUCCESS; }
CUresult cuDeviceCanAccessPeer(int *can, CUdevice d, CUdevice other)
{
    return *can = d != other, CUDA_SUCCESS;
}
CUresult cuCtxEnablePeerAccess(CUcontext other, unsigned flags)
{
    return other && !flags ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE;
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

/* ---- Kernels: a library, which is its kernel too, knows how large its parameter is ---- */

struct CUlib_st {
    size_t parameters;
};

/* Of a cubin of sm_90 the bank of constants begins with 528 bytes of the driver's; parameters follow. */
static size_t elf_parameters(const char *elf)
{
    enum { DRIVERS_OWN = 528 };
    static const char bank[] = ".nv.constant0.";
    Elf64_Ehdr head;
    memcpy(&head, elf, sizeof head);
    const Elf64_Shdr *section = (const Elf64_Shdr *)(const void *)(elf + head.e_shoff);
    const char *names = elf + section[head.e_shstrndx].sh_offset;
    for (int i = 0; i < head.e_shnum; i++)
        if (!strncmp(names + section[i].sh_name, bank, strlen(bank)) && section[i].sh_size >= DRIVERS_OWN)
            return section[i].sh_size - DRIVERS_OWN;
    return 0;
}

CUresult cuLibraryLoadData(CUlibrary *out, const void *data, CUjit_option *jo, void **jv, unsigned nj,
                           CUlibraryOption *lo, void **lv, unsigned nl)
{
    (void)jo, (void)jv, (void)nj, (void)lo, (void)lv, (void)nl;
    bool elf = !memcmp(data, ELFMAG, SELFMAG);
    *out = malloc(sizeof **out);
    if (!*out) return CUDA_ERROR_OUT_OF_MEMORY;
    (*out)->parameters = elf ? elf_parameters(data) : fake_image_fields(data).parameters;
    return CUDA_SUCCESS;
}
CUresult cuLibraryUnload(CUlibrary l) { return free(l), CUDA_SUCCESS; }

CUresult cuLibraryGetKernel(CUkernel *out, CUlibrary l, const char *name)
{
    return (void)name, *out = (CUkernel)(void *)l, CUDA_SUCCESS;
}
CUresult cuKernelGetFunction(CUfunction *out, CUkernel k)
{
    return *out = (CUfunction)(void *)k, CUDA_SUCCESS;
}

CUresult cuKernelSetAttribute(CUfunction_attribute a, int value, CUkernel k, CUdevice d)
{
    (void)a, (void)value, (void)k, (void)d;
    return CUDA_SUCCESS;
}

CUresult cuKernelGetParamInfo(CUkernel k, size_t i, size_t *offset, size_t *size)
{
    *offset = 0, *size = ((CUlibrary)(void *)k)->parameters;
    return i ? CUDA_ERROR_INVALID_VALUE : CUDA_SUCCESS;
}
CUresult cuFuncLoad(CUfunction f) { return (void)f, CUDA_SUCCESS; }

CUresult cuLaunchKernelEx(const CUlaunchConfig *c, CUfunction f, void **params, void **extra)
{
    (void)c, (void)f, (void)params, (void)extra;
    return CUDA_SUCCESS;
}

CUresult cuTensorMapEncodeTiled(CUtensorMap *map, CUtensorMapDataType type, cuuint32_t rank, void *address,
                                const cuuint64_t *dim, const cuuint64_t *stride, const cuuint32_t *box,
                                const cuuint32_t *step, CUtensorMapInterleave interleave,
                                CUtensorMapSwizzle swizzle, CUtensorMapL2promotion promotion,
                                CUtensorMapFloatOOBfill fill)
{
    (void)type, (void)rank, (void)address, (void)dim, (void)stride, (void)box, (void)step;
    (void)interleave, (void)swizzle, (void)promotion, (void)fill;
    memset(map, 0, sizeof *map);
    return CUDA_SUCCESS;
}
CUresult cuTensorMapReplaceAddress(CUtensorMap *map, void *address)
{
    return (void)map, (void)address, CUDA_SUCCESS;
}

/* ---- Memory: the page before an allocation holds its size ---- */

CUresult cuMemAlloc_v2(CUdeviceptr *out, size_t size)
{
    char *p =
        mmap(NULL, size + PAGE, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    *out = 0;
    if (p == MAP_FAILED) return CUDA_ERROR_OUT_OF_MEMORY;
    memcpy(p, &size, sizeof size);
    return *out = (CUdeviceptr)(uintptr_t)(p + PAGE), CUDA_SUCCESS;
}

CUresult cuMemFree_v2(CUdeviceptr p)
{
    char *begin = (char *)(uintptr_t)p - PAGE;
    size_t size;
    memcpy(&size, begin, sizeof size);
    munmap(begin, size + PAGE);
    return CUDA_SUCCESS;
}

CUresult cuMemGetInfo_v2(size_t *left, size_t *all) { return *left = *all = (size_t)1 << 37, CUDA_SUCCESS; }
CUresult cuMemcpyHtoD_v2(CUdeviceptr to, const void *from, size_t n)
{
    return (void)to, (void)from, (void)n, CUDA_SUCCESS;
}
CUresult cuMemcpyDtoD_v2(CUdeviceptr to, CUdeviceptr from, size_t n)
{
    return (void)to, (void)from, (void)n, CUDA_SUCCESS;
}
CUresult cuMemcpyDtoDAsync_v2(CUdeviceptr to, CUdeviceptr from, size_t n, CUstream s)
{
    (void)to, (void)from, (void)n, (void)s;
    return CUDA_SUCCESS;
}
CUresult cuMemcpyDtoH_v2(void *to, CUdeviceptr from, size_t n)
{
    return (void)to, (void)from, (void)n, CUDA_SUCCESS;
}
CUresult cuMemAllocHost_v2(void **out, size_t n)
{
    return *out = malloc(n + !n), *out ? CUDA_SUCCESS : CUDA_ERROR_OUT_OF_MEMORY;
}
CUresult cuMemFreeHost(void *p) { return free(p), CUDA_SUCCESS; }
CUresult cuMemsetD8_v2(CUdeviceptr to, unsigned char c, size_t n)
{
    return (void)to, (void)c, (void)n, CUDA_SUCCESS;
}

CUresult cuPointerGetAttribute(void *out, CUpointer_attribute a, CUdeviceptr p)
{
    (void)out, (void)a, (void)p;
    return CUDA_ERROR_INVALID_VALUE;
}
