/*
 * driver.c -- opens libcuda, NVRTC, cuBLASLt and NCCL at first need, and says what is missing. Where they are
 * looked for is library.c's.
 */
#include "driver.h"
#include "library.h"

#include <dlfcn.h>
#include <elf.h>
#include <link.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "cache.h"

const char *jit_environment(const char *name) { return environment(name); }

coda_status jit_fail(char *err, coda_status status, const char *format, ...)
{
    va_list args;
    va_start(args, format);
    vsnprintf(err, JIT_ERROR_SIZE, format, args);
    va_end(args);
    for (char *c = err; *c; c++)
        if (*c == '\n') *c = ' ';
    return status;
}

/* ---- Names ---- */

#define STRING(x) #x
#define DRIVER_NAME(name) STRING(name),
static const char *const driver_names[] = {DRIVER_FUNCTIONS(DRIVER_NAME) NULL};
static const char *const nvrtc_names[] = {NVRTC_FUNCTIONS(DRIVER_NAME) NULL};
static const char *const cublaslt_names[] = {CUBLASLT_FUNCTIONS(DRIVER_NAME) NULL};
static const char *const nccl_names[] = {NCCL_FUNCTIONS(DRIVER_NAME) NULL};

static coda_status missing(const struct library *l, const char *hint, char *err)
{
    return jit_fail(err, CODA_E_DEVICE, "%s is missing: %s%s", l->title, l->why, hint);
}

/* ---- libcuda ---- */

static struct library libcuda = {.title = "the CUDA driver", .names = {"libcuda.so.1"}};
static struct driver driver;
static _Atomic(const struct driver *) loaded; /* once it works: read by each launch */

static void load_driver(void)
{
    library_open_driver(&libcuda);
    library_fill(&libcuda, driver_names, &driver);
    if (!libcuda.handle) return;
    CUresult r = driver.cuInit(0);
    if (r == CUDA_SUCCESS) atomic_store_explicit(&loaded, &driver, memory_order_release);
    if (r == CUDA_SUCCESS) return;
    const char *name = NULL, *text = NULL;
    driver.cuGetErrorName(r, &name);
    driver.cuGetErrorString(r, &text);
    snprintf(libcuda.why, sizeof libcuda.why, "cuInit of %.100s: %s: %s", libcuda.path, name ? name : "?",
             text ? text : "?");
    libcuda.handle = NULL; /* but stays open: threads of the driver may run in it */
}

const struct driver *driver_open(char *err)
{
    static pthread_once_t once = PTHREAD_ONCE_INIT;
    const struct driver *d = atomic_load_explicit(&loaded, memory_order_acquire);
    if (d) return d;
    pthread_once(&once, load_driver);
    if (libcuda.handle) return &driver;
    missing(&libcuda, "", err);
    return NULL;
}

coda_status driver_fail(const struct driver *d, char *err, CUresult r, const char *what)
{
    const char *name = NULL, *text = NULL;
    d->cuGetErrorName(r, &name);
    d->cuGetErrorString(r, &text);
    coda_status status = r == CUDA_ERROR_OUT_OF_MEMORY ? CODA_E_MEMORY : CODA_E_DEVICE;
    return jit_fail(err, status, "%s: %s: %s", what, name ? name : "unknown error", text ? text : "");
}

bool jit_driver_info(char *line, size_t size)
{
    char err[JIT_ERROR_SIZE];
    const struct driver *d = driver_open(err);
    char text[32];
    int version = 0;
    if (!d) return snprintf(line, size, "%s", err), false;
    d->cuDriverGetVersion(&version);
    snprintf(text, sizeof text, "%d.%d", version / 1000, version % 1000 / 10);
    library_print(&libcuda, text, line, size);
    return true;
}

/* ---- NVRTC ---- */

static const char *const find_hint = " ($CODA_CUDA_LIB names its folder)";
static struct library libnvrtc = {.title = "NVRTC", .names = {"libnvrtc.so.13", "libnvrtc.so.12"}};
static struct nvrtc nvrtc;
static char build_id[64];

/* Reads the GNU build id of one loaded file out of its notes. */
static void read_build_id(const struct dl_phdr_info *info, const ElfW(Phdr) * segment)
{
    const char *p = (const char *)(info->dlpi_addr + segment->p_vaddr), *end = p + segment->p_memsz;
    while ((size_t)(end - p) > sizeof(ElfW(Nhdr))) {
        const ElfW(Nhdr) *note = (const ElfW(Nhdr) *)(const void *)p;
        const char *name = p + sizeof *note;
        const unsigned char *id = (const unsigned char *)name + ((note->n_namesz + 3) & ~3u);
        if (note->n_type == NT_GNU_BUILD_ID && note->n_namesz == 4 && !memcmp(name, "GNU", 4)) {
            for (unsigned i = 0; i < note->n_descsz && 2 * i + 3 < sizeof build_id; i++)
                snprintf(build_id + 2 * i, 3, "%02x", id[i]);
            return;
        }
        p = (const char *)id + ((note->n_descsz + 3) & ~3u);
    }
}

/* dl_iterate_phdr's callback: `base` is where NVRTC was mapped. */
static int visit_file(struct dl_phdr_info *info, size_t size, void *base)
{
    (void)size;
    if ((void *)info->dlpi_addr != base) return 0;
    for (int i = 0; i < info->dlpi_phnum; i++)
        if (info->dlpi_phdr[i].p_type == PT_NOTE && !build_id[0]) read_build_id(info, &info->dlpi_phdr[i]);
    return 1;
}

/* NVRTC opens its builtins by their name alone; loaded before, they are found wherever they lie. */
static void load_builtins(void)
{
    char name[64];
    int major = 0, minor = 0;
    if (nvrtc.nvrtcVersion(&major, &minor)) return;
    snprintf(name, sizeof name, "libnvrtc-builtins.so.%d.%d", major, minor);
    library_open_companion(&libnvrtc, name);
}

static void load_nvrtc(void)
{
    Dl_info info;
    library_open_toolkit(&libnvrtc);
    library_fill(&libnvrtc, nvrtc_names, &nvrtc);
    if (libnvrtc.handle && dladdr((void *)(uintptr_t)nvrtc.nvrtcVersion, &info))
        dl_iterate_phdr(visit_file, info.dli_fbase);
    if (libnvrtc.handle) load_builtins();
}

const struct nvrtc *nvrtc_open(char *err)
{
    static pthread_once_t once = PTHREAD_ONCE_INIT;
    pthread_once(&once, load_nvrtc);
    if (libnvrtc.handle) return &nvrtc;
    missing(&libnvrtc, find_hint, err);
    return NULL;
}

const char *nvrtc_build_id(void) { return build_id; }

bool jit_nvrtc_info(char *line, size_t size)
{
    char err[JIT_ERROR_SIZE];
    const struct nvrtc *n = nvrtc_open(err);
    char text[32];
    int major = 0, minor = 0;
    if (!n) return snprintf(line, size, "%s", err), false;
    n->nvrtcVersion(&major, &minor);
    snprintf(text, sizeof text, "%d.%d", major, minor);
    library_print(&libnvrtc, text, line, size);
    return true;
}

/* ---- cuBLASLt ---- */

static struct library libcublaslt = {
    .title = "cuBLASLt",
    .names = {"libcublasLt.so.13", "libcublasLt.so.12"},
};
static struct cublaslt cublaslt;

static void load_cublaslt(void)
{
    char err[JIT_ERROR_SIZE];
    if (!driver_open(err) && library_strays(&libcublaslt)) return; /* it opens libcuda by its plain name */
    library_open_toolkit(&libcublaslt);
    library_fill(&libcublaslt, cublaslt_names, &cublaslt);
}

const struct cublaslt *cublaslt_open(char *err)
{
    static pthread_once_t once = PTHREAD_ONCE_INIT;
    pthread_once(&once, load_cublaslt);
    if (libcublaslt.handle) return &cublaslt;
    missing(&libcublaslt, find_hint, err);
    return NULL;
}

bool jit_cublaslt_info(char *line, size_t size)
{
    char err[JIT_ERROR_SIZE];
    const struct cublaslt *l = cublaslt_open(err);
    char text[64];
    if (!l) return snprintf(line, size, "%s", err), false;
    size_t v = l->cublasLtGetVersion(); /* 130100 = 13.1.0; 120805 = 12.8.5 */
    snprintf(text, sizeof text, "%zu.%zu.%zu", v / 10000, v / 100 % 100, v % 100);
    library_print(&libcublaslt, text, line, size);
    return true;
}

/* ---- NCCL ---- */

enum { NCCL_OLDEST = 21403 }; /* aborts free what waits in a kernel */

static struct library libnccl = {.title = "NCCL", .names = {"libnccl.so.2"}};
static struct nccl nccl;

static void print_nccl_version(char *text, size_t size)
{
    int v = 0;
    if (nccl.ncclGetVersion(&v)) v = 0;
    bool old = v < 10000; /* 2804 = 2.8.4; 22809 = 2.28.9 */
    snprintf(text, size, "%d.%d.%d", old ? v / 1000 : v / 10000, old ? v / 100 % 10 : v / 100 % 100, v % 100);
}

static void check_nccl_version(void)
{
    char text[32];
    int v = 0;
    if (!nccl.ncclGetVersion(&v) && v >= NCCL_OLDEST) return;
    print_nccl_version(text, sizeof text);
    snprintf(libnccl.why, sizeof libnccl.why, "%.100s is version %s; must be %d.%d.%d or newer", libnccl.path,
             text, NCCL_OLDEST / 10000, NCCL_OLDEST / 100 % 100, NCCL_OLDEST % 100);
    libnccl.handle = NULL; /* but stays open: threads may run in it */
}

/* A communicator of the caller's belongs to the copy that the process has: that one is taken. */
static void load_nccl(void)
{
    char err[JIT_ERROR_SIZE];
    if (!driver_open(err) && library_strays(&libnccl)) return; /* it opens libcuda by its plain name */
    if (!library_open_loaded(&libnccl)) library_open_toolkit(&libnccl);
    library_fill(&libnccl, nccl_names, &nccl);
    if (libnccl.handle) check_nccl_version();
}

const struct nccl *nccl_open(char *err)
{
    static pthread_once_t once = PTHREAD_ONCE_INIT;
    pthread_once(&once, load_nccl);
    if (libnccl.handle) return &nccl;
    missing(&libnccl, find_hint, err);
    return NULL;
}

bool jit_nccl_info(char *line, size_t size)
{
    char err[JIT_ERROR_SIZE], text[32];
    if (!nccl_open(err)) return snprintf(line, size, "%s", err), false;
    print_nccl_version(text, sizeof text);
    library_print(&libnccl, text, line, size);
    return true;
}
