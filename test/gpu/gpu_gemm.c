/*
 * gpu_gemm.c -- the GEMM kernels, with every epilogue of the table, against fp64 on the GPU.
 *
 * Outputs start poisoned and padding must stay so; each kernel runs twice and must repeat its bits.
 * Then the same epilogues on random shapes. With CODA_TEST_CASE only cases run whose names contain it: kinds
 * that no GPU has run can each have a process, and a time limit, of their own.
 */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "emit.h"
#include "epilogue_layout.h"
#include "gpu_case.h"
#include "jit.h"
#include "util_device.h"
#include "util_gemm.h"
#include "util_random.h"
#include "util_scale.h"

int gpu_gemm(void);

enum {
    RANDOM_CASES = 100,
    MANY_ROWS = 1024,          /* more are walked and tiled otherwise */
    MOST_ROWS = 48,            /* checked in each case */
    MOST_PRODUCTS = 100000000, /* and all columns of what has fewer */
    AT_ONCE = 16,              /* cases that run before any is reported: what a hang may hide */
    EMULATED_RANDOM = 8,
    EMULATED_MOST = 700,  /* rows and columns of a case with many tiles */
    EMULATED_SHARE = 14,  /* one in so many of the chosen cases */
    EMULATED_OTHERS = 48, /* and one in so many on the other main loops */
};

struct bench {
    struct gemm_case c;
    enum gemm_loop loop;
    struct gemm_rig rig;
    struct jit_cubin cubin;
    struct jit_kernel *kernel;
    void *gpu[GEMM_BUFFERS];
    double error; /* in units of what is allowed */
    char err[JIT_ERROR_SIZE];
};

static struct jit_device device;

static bool complain(struct bench *b, const char *what)
{
    return snprintf(b->err, sizeof b->err, "%s", what), false;
}

/* ---- Build, in parallel ---- */

static void build(void *ctx, int64_t i)
{
    struct bench *b = (struct bench *)ctx + i;
    struct jit_options opt = {.arch = device.arch};
    if (gemm_emit(&b->c, b->loop, device.sms, &b->rig)) complain(b, coda_error());
    else if (!gemm_fill(&b->rig, 1000 * (uint64_t)i + 1)) complain(b, "out of memory");
    else jit_compile(&b->cubin, b->rig.k.symbol, b->rig.k.text, &opt, b->err);
}

/* ---- Run ---- */

static bool encode(const struct bench *b, const struct map_spec *m, struct jit_map *out, char *err)
{
    struct jit_map_shape shape = {.dtype = m->dtype, .rank = m->rank, .swizzle = m->swizzle};
    memcpy(shape.dim, m->dim, sizeof shape.dim);
    memcpy(shape.stride, m->stride, sizeof shape.stride);
    memcpy(shape.box, m->box, sizeof shape.box);
    return !jit_map_encode(out, &shape, (char *)b->gpu[m->buffer] + m->offset * dtype_bytes(m->dtype, 1),
                           err);
}

static bool launch(struct bench *b)
{
    const struct kernel *k = &b->rig.k;
    struct {
        struct jit_map map[KERNEL_MAX_MAPS];
        void *pointer[KERNEL_MAX_POINTERS];
    } params = {0};
    for (int i = 0; i < k->maps; i++)
        if (!encode(b, &k->map[i], &params.map[i], b->err)) return false;
    void **pointer = (void **)&params.map[k->maps];
    for (int i = 0; i < k->pointers; i++)
        pointer[i] = (char *)b->gpu[k->pointer[i].buffer] + k->pointer[i].bytes;
    struct jit_launch l = {(unsigned)kernel_blocks(&k->launch, device.sms), (unsigned)k->launch.threads,
                           (unsigned)k->launch.shared_bytes, false};
    char *scalar = (char *)(pointer + k->pointers);
    for (int i = 0; i < k->scalars; i++) {
        const struct scalar_spec *s = &k->scalar[i];
        memcpy(scalar + 4 * i, s->buffer == SCALAR_NUMBER ? (const void *)&s->number : b->rig.host[s->buffer],
               4);
    }
    size_t bytes = (size_t)(128 * k->maps + 8 * k->pointers + 4 * k->scalars);
    return !jit_launch(b->kernel, &l, &params, bytes, NULL, b->err);
}

/* Poison, or what is added to. */
static bool begin(struct bench *b, int buffer)
{
    const struct gemm_rig *r = &b->rig;
    size_t bytes = (size_t)r->buffer[buffer].bytes;
    if (r->fill[buffer] == FILL_OUTPUT) return device_fill(b->gpu[buffer], 0xff, bytes);
    if (r->fill[buffer] != FILL_SUM) return true;
    gemm_begin_sum(r, buffer);
    return device_upload(b->gpu[buffer], r->host[buffer], bytes);
}

/* Begins the outputs, runs, and brings them back into `host`, the rig's own last. */
static bool run_once(struct bench *b, void **host)
{
    const struct gemm_rig *r = &b->rig;
    for (int i = 0; i < r->plan.buffers; i++)
        if (!begin(b, i)) return false;
    if (!launch(b)) return false;
    if (!device_wait()) return complain(b, "the kernel failed");
    for (int i = 0; i < r->plan.buffers; i++)
        if (r->fill[i] >= FILL_OUTPUT && !device_download(host[i], b->gpu[i], (size_t)r->buffer[i].bytes))
            return false;
    return true;
}

static bool repeats(struct bench *b)
{
    void *again[GEMM_BUFFERS] = {NULL};
    bool same = true;
    if (device_dry()) return true;
    for (int i = 0; i < b->rig.plan.buffers; i++) again[i] = malloc((size_t)b->rig.buffer[i].bytes + 1);
    bool ran = run_once(b, again) && run_once(b, b->rig.host);
    for (int i = 0; i < b->rig.plan.buffers; i++) {
        if (ran && b->rig.fill[i] >= FILL_OUTPUT)
            same = same && !memcmp(again[i], b->rig.host[i], (size_t)b->rig.buffer[i].bytes);
        free(again[i]);
    }
    return ran && (same || complain(b, "two runs differ"));
}

static bool run(struct bench *b)
{
    const struct kernel *k = &b->rig.k;
    if (jit_load(&b->kernel, &b->cubin, k->symbol, k->launch.shared_bytes, &device, NULL, b->err))
        return false;
    for (int i = 0; i < b->rig.plan.buffers; i++) {
        size_t bytes = (size_t)b->rig.buffer[i].bytes;
        if (!(b->gpu[i] = device_alloc(bytes)) || !device_upload(b->gpu[i], b->rig.host[i], bytes))
            return complain(b, "no device memory");
    }
    return repeats(b);
}

/* ---- Check, in parallel ---- */

static void check_row(struct bench *b, int64_t row)
{
    b->error = fmax(b->error, gemm_row_error(&b->rig, row / b->c.m, row % b->c.m));
}

static void check(void *ctx, int64_t i)
{
    struct bench *b = (struct bench *)ctx + i;
    int64_t rows = b->c.batch * b->c.m, step = MAX(1, rows / MOST_ROWS);
    struct random g = {(uint64_t)i};
    if (b->err[0] || device_dry()) return;
    for (int64_t first = 0; first + step <= rows; first += step) check_row(b, first + random_below(&g, step));
    if (rows) check_row(b, rows - 1);
    double products = (double)rows * (double)b->c.n * (double)b->c.k;
    for (int64_t j = 0; j < b->c.batch && products < MOST_PRODUCTS; j++)
        b->error = fmax(b->error, gemm_columns_error(&b->rig, j));
    if (!gemm_padding_is_poison(&b->rig)) complain(b, "padding was written");
}

static int report(struct bench *b)
{
    const struct tile *t = &b->rig.s.tile;
    const char *hopper = t->pingpong ? "ping-pong" : t->groups == 1 ? "narrow" : "cooperative";
    const char *loop = t->mainloop == &mainloop_wgmma ? hopper : t->mainloop->name;
    bool good = !b->err[0] && b->error <= 1;
    return gpu_case(good, b->c.name,
                    "[%lld, %lld, %lld, %lld] %s %dx%d/%d%s by %dx%d, error %.3f of allowed %s",
                    (long long)b->c.batch, (long long)b->c.m, (long long)b->c.n, (long long)b->c.k, loop,
                    t->bm, t->bn, MAX(t->splits, 1), t->scattered ? " scattered" : "", MAX(t->cluster_m, 1),
                    MAX(t->cluster_n, 1), b->error, b->err);
}

static void release(struct bench *b)
{
    jit_unload(b->kernel);
    jit_cubin_free(&b->cubin);
    for (int i = 0; i < GEMM_BUFFERS; i++) device_free(b->gpu[i]);
    gemm_free(&b->rig);
}

/* ---- Cases ---- */

static int64_t random_size(struct random *g, int64_t most, int64_t multiple)
{
    int64_t n = 1 + random_below(g, most);
    return CEIL_DIV(n, multiple) * multiple;
}

/* Few rows, which a streaming mainloop takes if the rest suits it. */
static void stream(struct gemm_case *c, struct random *g)
{
    c->batch = 1;
    c->m = random_size(g, 16, 1);
    c->k = random_size(g, 2000, 256);
    c->n = CEIL_DIV(c->n, 16) * 16;
    c->a_mn = c->b_mn = false;
    c->pitch = CEIL_DIV(c->pitch, 8) * 8;
}

/* An epilogue and layout of the table on another shape, with the tile that it would get, or with any. */
static struct gemm_case random_case(struct random *g)
{
    struct gemm_case c = gemm_cases[random_below(g, gemm_case_count)];
    bool neat = random_chance(g, 60);
    int64_t n = c.n;
    c.batch = random_chance(g, 25) ? 1 + random_below(g, 4) : 1;
    c.m = random_size(g, 400, c.a_mn && neat ? 8 : 1) + (random_chance(g, 15) ? MANY_ROWS : 0);
    c.k = random_size(g, 300, neat ? 8 : 1);
    c.n = random_size(g, 700, neat ? 8 : 1);
    if (c.pair == PAIR_HEADS) c.n = c.rope.head_dim * (1 + random_below(g, 5));
    else if (c.pair) c.n = CEIL_DIV(c.n, 2) * 2;
    if (neat) c.pitch = CEIL_DIV(c.pitch, 8) * 8;
    bool samples = !strncmp(c.name, "samples", 7), heads = !strncmp(c.name, "heads", 5);
    if (samples) c.batch = 1, c.m = 3 * (64 + random_below(g, 80)); /* whole ones, which stay vectors */
    if (heads) c.n = n;                                             /* the columns that its parts have */
    if (!samples && !heads && random_chance(g, 20) && (c.pair != PAIR_HEADS || c.n % 16 == 0)) stream(&c, g);
    c.tile = (struct tile){0};
    if (random_chance(g, 75)) c.tile = gemm_any_tile(&c, random_next(g));
    return c;
}

/* Few SMs walk over many tiles where there are some dozen. */
static struct gemm_case smaller(struct gemm_case c)
{
    bool tiled = !c.tile.mainloop || !c.tile.mainloop->streams;
    if (tiled && c.m > EMULATED_MOST) c.m = c.m / 4 + c.m % 4;
    if (tiled && c.n > EMULATED_MOST && !c.pair && !c.tile.tail) c.n = c.n / 32 * 8 + c.n % 8;
    return c;
}

/* The SM in software takes a share of the cases, or all in a full run. */
static bool is_emulated(int i, enum gemm_loop loop)
{
    bool hopper = loop == GEMM_HOPPER;
    return scale_takes_one_in(hopper ? EMULATED_SHARE : EMULATED_OTHERS, i + (int)loop) &&
           gemm_case_taken(i, loop);
}

static int run_some(struct bench *b, int n)
{
    int failures = 0;
    for (int i = 0; i < n; i++)
        if (!b[i].err[0] && !run(&b[i]) && !b[i].err[0]) complain(&b[i], "a device call failed");
    parallel_for(n, check, b);
    for (int i = 0; i < n; i++) {
        failures += report(&b[i]);
        release(&b[i]);
    }
    return failures;
}

static int run_all(struct bench *b, int n)
{
    int failures = 0;
    parallel_for(n, build, b);
    for (int i = 0; i < n; i += AT_ONCE) failures += run_some(b + i, MIN(AT_ONCE, n - i));
    return failures;
}

/* Each case on the main loops of its own card, on the others those that cover pairs of epilogue, layout and
 * width of copies, and a share of the rest that the seed draws ($CODA_FULL: all); then random ones. A share
 * of them if the device is emulated. If some are named, these alone; "random": the random ones alone. */
static int make_cases(struct bench *b, bool emulated)
{
    struct random g = {random_seed()};
    const char *named = getenv("CODA_TEST_CASE");
    bool all = !named || !strcmp(named, "random");
    int few = MIN(scaled(EMULATED_RANDOM), RANDOM_CASES);
    int n = 0, randoms = !all ? 0 : emulated && !named ? few : RANDOM_CASES;
    for (int i = 0; i < GEMM_LOOPS * gemm_case_count; i++) {
        const struct gemm_case *c = &gemm_cases[i / GEMM_LOOPS];
        enum gemm_loop loop = (enum gemm_loop)(i % GEMM_LOOPS);
        if (emulated && !named && !is_emulated(i / GEMM_LOOPS, loop)) continue;
        if (!emulated && !named && loop != GEMM_HOPPER && !gemm_case_taken(i / GEMM_LOOPS, loop)) continue;
        if (named && !strstr(c->name, named)) continue;
        if (loop == GEMM_MMA && c->dtype == CODA_F32) continue;
        b[n].c = emulated ? smaller(*c) : *c;
        b[n++].loop = loop;
    }
    for (int i = 0; i < randoms; i++) {
        b[n].c = random_case(&g);
        b[n++].loop = (enum gemm_loop)(i % GEMM_LOOPS);
    }
    return n;
}

int gpu_gemm(void)
{
    char err[JIT_ERROR_SIZE];
    if (!device_open(&device, err)) return gpu_case(false, "gemm", "%s", err);
    struct bench *b = calloc((size_t)(GEMM_LOOPS * gemm_case_count + RANDOM_CASES), sizeof *b);
    if (!b) return gpu_case(false, "gemm", "out of memory");
    int failures = run_all(b, make_cases(b, device_emulated(&device)));
    free(b);
    return failures;
}
