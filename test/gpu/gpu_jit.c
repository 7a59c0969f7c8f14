/* gpu_jit.c -- compile, load, tensor maps and launch on the device. */
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "gpu_case.h"
#include "jit.h"
#include "util_device.h"

static struct jit_device dev;
static char err[JIT_ERROR_SIZE];

static struct jit_kernel *build(const char *symbol, const char *text, int shared_bytes)
{
    struct jit_cubin c;
    struct jit_kernel *k = NULL;
    struct jit_options o = {.arch = dev.arch, .no_cache = true};
    if (jit_compile(&c, symbol, text, &o, err)) return NULL;
    if (jit_load(&k, &c, symbol, shared_bytes, &dev, NULL, err)) k = NULL;
    jit_cubin_free(&c);
    return k;
}

/* ---- Launch: y = 2 x through dynamic shared memory, one block for each 256 elements ---- */

static const char *const twice_text =
    "struct P { const float *x; float *y; int n; };\n"
    "extern \"C\" __global__ void twice(const __grid_constant__ P p) {\n"
    "    extern __shared__ float s[];\n"
    "    unsigned far = gridDim.y * 50000 + threadIdx.x;\n" /* 200 kB up: more than the default limit */
    "    int i = blockIdx.x * 256 + threadIdx.x;\n"
    "    if (i < p.n) { s[far] = p.x[i]; p.y[i] = 2 * s[far]; }\n"
    "}\n";
enum { TWICE_N = 1000, TWICE_SHARED = 50000 * 4 + 256 * 4 };

struct twice {
    const float *x;
    float *y;
    int n;
};
static const struct jit_launch twice_launch = {.grid = 4, .threads = 256, .shared_bytes = TWICE_SHARED};

struct twice_run {
    const struct jit_kernel *kernel;
    struct twice params;
    bool pdl;
    coda_status status;
    char err[JIT_ERROR_SIZE];
};

static void *run_twice(void *ctx)
{
    struct twice_run *r = ctx;
    struct jit_launch l = twice_launch;
    union {
        struct twice params;
        char room[JIT_PARAMS_ALIGN];
    } u = {r->params};
    l.pdl = r->pdl;
    r->status = jit_launch(r->kernel, &l, &u, sizeof u.params, NULL, r->err);
    return NULL;
}

static int check_twice(struct twice_run *r, const char *name)
{
    static float x[TWICE_N], y[TWICE_N];
    int wrong = 0;
    bool moved = !r->status && device_wait() && device_download(x, r->params.x, sizeof x) &&
                 device_download(y, r->params.y, sizeof y);
    for (int i = 0; i < TWICE_N; i++) wrong += y[i] != 2 * x[i];
    return gpu_case(moved && !wrong, name, "%d of %d wrong%s%s", wrong, TWICE_N, r->status ? ": " : "",
                    r->status ? r->err : "");
}

/* As a thread without a context does it. */
static void *enter_and_run_twice(void *ctx)
{
    struct twice_run *r = ctx;
    if ((r->status = jit_device_enter(&dev, r->err))) return NULL;
    run_twice(r);
    jit_device_leave();
    return NULL;
}

/* In this thread, again with the PDL attribute, and in a thread that has no context, but enters one. */
static int check_launches(const struct jit_kernel *k)
{
    int failures = 0;
    static float x[TWICE_N];
    for (int i = 0; i < TWICE_N; i++) x[i] = (float)(i + 1) / 3;
    float *dx = device_alloc(sizeof x), *dy = device_alloc(sizeof x);
    struct twice_run r = {.kernel = k, .params = {dx, dy, TWICE_N}};
    const char *const names[] = {"launch", "launch with PDL", "launch in a thread without context"};
    device_upload(dx, x, sizeof x);
    for (int i = 0; i < 3; i++) {
        pthread_t thread;
        device_fill(dy, 0xff, sizeof x);
        r.pdl = i == 1;
        if (i < 2) run_twice(&r);
        else if (!pthread_create(&thread, NULL, enter_and_run_twice, &r)) pthread_join(thread, NULL);
        failures += check_twice(&r, names[i]);
    }
    device_free(dx);
    device_free(dy);
    return failures;
}

/* Loads in a thread that has no context. */
static void *build_twice(void *out)
{
    *(struct jit_kernel **)out = build("twice", twice_text, TWICE_SHARED);
    return NULL;
}

static int launches(void)
{
    struct jit_kernel *k = NULL;
    pthread_t thread;
    if (!pthread_create(&thread, NULL, build_twice, &k)) pthread_join(thread, NULL);
    int failures = gpu_case(k != NULL, "load in a thread without context", "%s", k ? "" : err);
    if (k) failures += check_launches(k);
    jit_unload(k);
    return failures;
}

static int refusals(void)
{
    struct jit_cubin c;
    struct jit_kernel *k;
    struct jit_options o = {.arch = dev.arch, .no_cache = true};
    if (jit_compile(&c, "twice", twice_text, &o, err)) return gpu_case(false, "compile", "%s", err);
    coda_status none = jit_load(&k, &c, "thrice", 0, &dev, NULL, err);
    int failures = gpu_case(none == CODA_E_DEVICE && strstr(err, "thrice"), "no such kernel", "%s", err);
    coda_status large = jit_load(&k, &c, "twice", 1 << 20, &dev, NULL, err);
    failures += gpu_case(large == CODA_E_UNSUPPORTED && strstr(err, "1048576"), "shared memory", "%s", err);
    jit_cubin_free(&c);
    return failures;
}

/* ---- Tensor maps: box (1, 2) of a [37, 72] bf16 matrix of pitch 80, zero outside ---- */

static const char *const tile_text =
    "struct alignas(64) Map { unsigned long long q[16]; };\n"
    "struct P { Map map; unsigned short *out; };\n"
    "extern \"C\" __global__ void tile(const __grid_constant__ P p) {\n"
    "    extern __shared__ __align__(1024) unsigned short s[];\n"
    "    __shared__ unsigned long long bar;\n"
    "    unsigned b = __cvta_generic_to_shared(&bar), d = __cvta_generic_to_shared(s), done = 0;\n"
    "    if (threadIdx.x == 0) {\n"
    "        asm volatile(\"mbarrier.init.shared::cta.b64 [%0], 1;\" :: \"r\"(b));\n"
    "        asm volatile(\"fence.mbarrier_init.release.cluster;\");\n"
    "        asm volatile(\"mbarrier.arrive.expect_tx.shared::cta.b64 _, [%0], 2048;\" :: \"r\"(b));\n"
    "        asm volatile(\"cp.async.bulk.tensor.2d.shared::cluster.global.tile\"\n"
    "                     \".mbarrier::complete_tx::bytes [%0], [%1, {%3, %4}], [%2];\"\n"
    "                     :: \"r\"(d), \"l\"(&p.map), \"r\"(b), \"r\"(64), \"r\"(32) : \"memory\");\n"
    "    }\n"
    "    __syncthreads();\n"
    "    while (!done)\n"
    "        asm volatile(\"{ .reg .pred q; mbarrier.try_wait.parity.shared::cta.b64 q, [%1], 0;\"\n"
    "                     \" selp.u32 %0, 1, 0, q; }\" : \"=r\"(done) : \"r\"(b) : \"memory\");\n"
    "    for (int i = threadIdx.x; i < 1024; i += 32) p.out[i] = s[i];\n"
    "}\n";
enum { ROWS = 37, COLS = 72, PITCH = 80, BOX_ROWS = 16, BOX_COLS = 64, AT_ROW = 32, AT_COL = 64 };

struct tile {
    struct jit_map map;
    unsigned short *out;
};

static int count_wrong(const unsigned short *matrix, const unsigned short *box)
{
    int wrong = 0;
    for (int i = 0; i < BOX_ROWS; i++)
        for (int j = 0; j < BOX_COLS; j++) {
            int row = AT_ROW + i, col = AT_COL + j;
            unsigned short want = row < ROWS && col < COLS ? matrix[row * PITCH + col] : 0;
            wrong += box[i * BOX_COLS + j] != want;
        }
    return wrong;
}

static int check_tile(const struct jit_kernel *k, struct tile *p, const unsigned short *matrix,
                      const char *name)
{
    static unsigned short box[BOX_ROWS * BOX_COLS];
    struct jit_launch l = {.grid = 1, .threads = 32, .shared_bytes = 4096};
    memset(box, 0xff, sizeof box);
    bool good = !jit_launch(k, &l, p, sizeof p->map + sizeof p->out, NULL, err) && device_wait() &&
                device_download(box, p->out, sizeof box);
    int wrong = count_wrong(matrix, box);
    return gpu_case(good && !wrong, name, "%d of %d wrong%s%s", wrong, BOX_ROWS * BOX_COLS, good ? "" : ": ",
                    good ? "" : err);
}

/* A map of one matrix; then the same map moved to another. */
static int check_maps(const struct jit_kernel *k)
{
    static unsigned short first[ROWS * PITCH], second[ROWS * PITCH];
    for (int i = 0; i < ROWS * PITCH; i++) first[i] = (unsigned short)(i + 1), second[i] = (unsigned short)~i;
    void *a = device_alloc(sizeof first), *b = device_alloc(sizeof second);
    struct tile p = {.out = device_alloc(BOX_ROWS * BOX_COLS * 2)};
    struct jit_map_shape s = {.dtype = CODA_BF16,
                              .rank = 2,
                              .dim = {COLS, ROWS},
                              .stride = {1, PITCH},
                              .box = {BOX_COLS, BOX_ROWS}};
    device_upload(a, first, sizeof first);
    device_upload(b, second, sizeof second);
    coda_status status = jit_map_encode(&p.map, &s, a, err);
    int failures = status ? gpu_case(false, "map", "%s", err) : check_tile(k, &p, first, "map");
    status = jit_map_rebase(&p.map, b, err);
    failures += status ? gpu_case(false, "map rebased", "%s", err) : check_tile(k, &p, second, "map rebased");
    device_free(a);
    device_free(b);
    device_free(p.out);
    return failures;
}

static int maps(void)
{
    if (device_emulated(&dev)) return gpu_skip("tensor map", "its kernel is PTX");
    if (strcmp(dev.arch, "sm_90a")) return 0; /* TMA */
    struct jit_kernel *k = build("tile", tile_text, 4096);
    int failures = k ? check_maps(k) : gpu_case(false, "tensor map", "%s", err);
    jit_unload(k);
    return failures;
}

int gpu_jit(void);
int gpu_jit(void)
{
    if (!device_open(&dev, err)) return gpu_case(false, "device", "%s", err);
    bool sane = dev.sms > 0 && dev.shared_bytes >= 48 << 10 && dev.memory && dev.context;
    int failures = gpu_case(sane, "device", "%s, %s, %d SMs, %d bytes of shared memory", dev.name, dev.arch,
                            dev.sms, dev.shared_bytes);
    return failures + launches() + refusals() + maps();
}
