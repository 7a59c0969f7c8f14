/*
 * driver.c -- opens libcuda, NVRTC and cuBLASLt at first need, and says what is missing.
 *
 * NVRTC and cuBLASLt are looked for in $CODA_CUDA_LIB alone (folders, separated by colons) if it is
 * set. Otherwise: where the loader looks (which finds a copy that the process already has), then
 * $CUDA_HOME, $CUDA_PATH and /usr/local/cuda, each with lib64 and lib, then cuda/lib beside libcoda.
 * libcuda belongs to the kernel module, so only the loader knows it; $CODA_LIBCUDA names another file.
 */
#include "driver.h"

#include <dlfcn.h>
#include <elf.h>
#include <limits.h>
#include <link.h>
#include <pthread.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

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

/* ---- Looking for a library ---- */

struct library {
    const char *title;      /* "NVRTC"                                                             */
    const char *names[3];   /* file names, the newest first                                        */
    void *handle;
    char path[PATH_MAX];    /* of the file that was opened                                         */
    char why[JIT_ERROR_SIZE / 2]; /* why there is none                                             */
};

static void note_reason(struct library *l, const char *reason)
{
    if (!l->why[0]) snprintf(l->why, sizeof l->why, "%s", reason ? reason : "not found");
}

/* Opens names[] in the folder of `length` characters, or by the loader's own search if that is 0. The
 * first reason is kept: it is about the newest name in the likeliest place. */
static bool open_in(struct library *l, const char *folder, size_t length)
{
    for (int i = 0; !l->handle && l->names[i]; i++) {
        char path[PATH_MAX];
        int n = snprintf(path, sizeof path, "%.*s%s%s", (int)length, folder, length ? "/" : "", l->names[i]);
        if (n < 0 || n >= (int)sizeof path) continue;
        l->handle = dlopen(path, RTLD_NOW | RTLD_LOCAL);
        if (!l->handle) note_reason(l, dlerror());
    }
    return l->handle;
}

static bool open_below(struct library *l, const char *home)
{
    static const char *const lib[] = {"lib64", "lib", "targets/x86_64-linux/lib"};
    char folder[PATH_MAX];
    for (size_t i = 0; home && *home && i < sizeof lib / sizeof *lib; i++) {
        int n = snprintf(folder, sizeof folder, "%s/%s", home, lib[i]);
        if (n > 0 && n < (int)sizeof folder && open_in(l, folder, (size_t)n)) return true;
    }
    return false;
}

/* The folder that `make` fills from NVIDIA's wheels: cuda/lib beside the file this code is in. */
static bool open_beside(struct library *l)
{
    Dl_info info;
    char home[PATH_MAX];
    if (!dladdr((void *)(uintptr_t)jit_fail, &info) || !info.dli_fname) return false;
    const char *slash = strrchr(info.dli_fname, '/');
    int n = slash ? (int)(slash - info.dli_fname) : 1;
    n = snprintf(home, sizeof home, "%.*s/cuda", n, slash ? info.dli_fname : ".");
    return n > 0 && n < (int)sizeof home && open_below(l, home);
}

static bool open_listed(struct library *l, const char *folders)
{
    for (;; folders++) {
        size_t n = strcspn(folders, ":");
        if (n && open_in(l, folders, n)) return true;
        folders += n;
        if (!*folders) return false;
    }
}

static bool search(struct library *l)
{
    const char *folders = secure_getenv("CODA_CUDA_LIB");
    if (folders && *folders) return open_listed(l, folders);
    return open_in(l, "", 0) || open_below(l, secure_getenv("CUDA_HOME")) ||
           open_below(l, secure_getenv("CUDA_PATH")) || open_below(l, "/usr/local/cuda") || open_beside(l);
}

/* ---- Filling a table ---- */

#define STRING(x) #x
#define DRIVER_NAME(name) STRING(name),
static const char *const driver_names[] = {DRIVER_FUNCTIONS(DRIVER_NAME) NULL};
static const char *const nvrtc_names[] = {NVRTC_FUNCTIONS(DRIVER_NAME) NULL};
static const char *const cublaslt_names[] = {CUBLASLT_FUNCTIONS(DRIVER_NAME) NULL};

/* A table is one function pointer for each name, in order. On failure the handle is dropped. */
static void fill(struct library *l, const char *const *names, void *table)
{
    void **slot = table;
    for (; l->handle && *names; names++, slot++) {
        *slot = dlsym(l->handle, *names);
        if (*slot) continue;
        snprintf(l->why, sizeof l->why, "%s is too old: it has no %s", l->names[0], *names);
        dlclose(l->handle);
        l->handle = NULL;
        return;
    }
    Dl_info info;
    if (l->handle && dladdr(slot[-1], &info) && info.dli_fname)
        snprintf(l->path, sizeof l->path, "%s", info.dli_fname);
}

static coda_status missing(const struct library *l, const char *hint, char *err)
{
    return jit_fail(err, CODA_E_DEVICE, "%s is missing: %s%s", l->title, l->why, hint);
}

/* ---- libcuda ---- */

static struct library libcuda = {.title = "the CUDA driver", .names = {"libcuda.so.1"}};
static struct driver driver;

static void load_driver(void)
{
    const char *file = secure_getenv("CODA_LIBCUDA");
    if (file && *file) libcuda.names[0] = file;
    open_in(&libcuda, "", 0);
    fill(&libcuda, driver_names, &driver);
    if (!libcuda.handle) return;
    CUresult r = driver.cuInit(0);
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
    int version = 0;
    if (!d) return snprintf(line, size, "%s", err), false;
    d->cuDriverGetVersion(&version);
    snprintf(line, size, "%d.%d %s", version / 1000, version % 1000 / 10, libcuda.path);
    return true;
}

/* ---- NVRTC ---- */

static const char *const find_hint = " ($CODA_CUDA_LIB names its folder)";
static struct library libnvrtc = {.title = "NVRTC", .names = {"libnvrtc.so.13", "libnvrtc.so.12"}};
static struct nvrtc nvrtc;
static char build_id[64];

/* Reads the GNU build id of one loaded file out of its notes. */
static void read_build_id(const struct dl_phdr_info *info, const ElfW(Phdr) *segment)
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
    char path[PATH_MAX];
    int major = 0, minor = 0;
    const char *slash = strrchr(libnvrtc.path, '/');
    if (!slash || nvrtc.nvrtcVersion(&major, &minor)) return;
    int n = snprintf(path, sizeof path, "%.*s/libnvrtc-builtins.so.%d.%d", (int)(slash - libnvrtc.path),
                     libnvrtc.path, major, minor);
    if (n > 0 && n < (int)sizeof path) dlopen(path, RTLD_NOW | RTLD_LOCAL);
}

static void load_nvrtc(void)
{
    Dl_info info;
    search(&libnvrtc);
    fill(&libnvrtc, nvrtc_names, &nvrtc);
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
    int major = 0, minor = 0;
    if (!n) return snprintf(line, size, "%s", err), false;
    n->nvrtcVersion(&major, &minor);
    snprintf(line, size, "%d.%d %s", major, minor, libnvrtc.path);
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
    search(&libcublaslt);
    fill(&libcublaslt, cublaslt_names, &cublaslt);
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
    if (!l) return snprintf(line, size, "%s", err), false;
    size_t v = l->cublasLtGetVersion(); /* 130100 = 13.1.0; 120805 = 12.8.5 */
    snprintf(line, size, "%zu.%zu.%zu %s", v / 10000, v / 100 % 100, v % 100, libcublaslt.path);
    return true;
}
