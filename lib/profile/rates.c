/*
 * rates.c -- what the device at hand does at best: a plain copy, and a plain square product, by the library's
 * own kernel and, where it is there, by cuBLASLt; the faster one counts. Products are of random numbers, for
 * a GPU that multiplies zeros draws less power and clocks higher.
 */
#include "pipeline.h"
#include "timer.h"

#include <stdlib.h>

enum { TURNS = 8, COPIES = 4, LARGE = 8192, LARGE_F32 = 4096, SMALL = 1024, PATTERN = 65521 };
static const int64_t LT_WORKSPACE = 64 << 20;

static bool is_gpu(const struct timer *t) { return t->run->plan->device == CODA_DEVICE_GPU; }

/* ---- Under the clock: the least of some turns, in microseconds ---- */

typedef coda_status work(const struct timer *t, void *context);

static coda_status time_once(const struct timer *t, work *fn, void *context, double *us)
{
    char err[JIT_ERROR_SIZE] = "";
    double began = profile_clock();
    coda_status status = is_gpu(t) ? jit_mark(t->marks, 0, err) : CODA_OK;
    if (!status) status = fn(t, context);
    if (!is_gpu(t)) return *us = profile_clock() - began, status;
    if (!status) status = jit_mark(t->marks, 1, err);
    if (!status) status = jit_marks_time(t->marks, 1, us, err);
    return status && *err ? fail(status, "profile: %s", err) : status;
}

static coda_status time_work(const struct timer *t, work *fn, void *context, double *least)
{
    coda_status status = CODA_OK;
    *least = 0;
    for (int i = 0; i < TURNS && !status; i++) {
        double us = 0;
        status = time_once(t, fn, context, &us);
        if (i && us > 0 && (!*least || us < *least)) *least = us;
    }
    return status;
}

/* ---- Copies ---- */

static coda_status copy(const struct timer *t, void *context)
{
    (void)context;
    coda_status status = CODA_OK;
    for (int i = 0; i < COPIES && !status; i++) status = timer_sweep(t);
    return status;
}

coda_status rate_of_copies(const struct timer *t, double *rate)
{
    double us;
    coda_status status = t->half ? time_work(t, copy, NULL, &us) : CODA_OK;
    *rate = !status && t->half && us > 0 ? 2e6 * COPIES * (double)t->half * t->sweeps / us : 0;
    return status;
}

/* ---- Products ---- */

struct product {
    coda_dtype dtype, result;
    int64_t n;
    void *x, *w, *y, *workspace;
    coda_plan *plan;
    struct jit_lt *lt;
};

static void *allocate(const struct timer *t, size_t bytes)
{
    char err[JIT_ERROR_SIZE];
    void *p = NULL;
    if (!is_gpu(t)) return aligned_alloc(256, CEIL_DIV(bytes, (size_t)256) * 256);
    return jit_alloc(&p, bytes, err) ? NULL : p;
}

static void release(const struct timer *t, void *p)
{
    if (is_gpu(t)) jit_free(p);
    else free(p);
}

/* Uniform in -1..1, from a linear congruential generator (Knuth, TAOCP 2, 3.3.4, line 26). */
static bool fill(const struct timer *t, void *to, coda_dtype dtype, int64_t elements)
{
    char err[JIT_ERROR_SIZE];
    uint64_t state = 1;
    int64_t n = is_gpu(t) ? PATTERN : elements;
    void *at = is_gpu(t) ? malloc((size_t)dtype_bytes(dtype, n)) : to;
    for (int64_t i = 0; at && i < n; i++) {
        state = state * 6364136223846793005u + 1;
        dtype_store(dtype, at, i, (double)(state >> 40) * 0x1p-23 - 1);
    }
    if (!is_gpu(t)) return at;
    bool good =
        at && !jit_fill(to, (size_t)dtype_bytes(dtype, elements), at, (size_t)dtype_bytes(dtype, n), err);
    free(at);
    return good;
}

/* The largest that takes at most half of the memory that is left. */
static int64_t choose_size(const struct timer *t, const struct product *p)
{
    if (!is_gpu(t)) return SMALL;
    int64_t n = p->dtype == CODA_F32 ? LARGE_F32 : LARGE, element = dtype_bytes(p->dtype, 1);
    int64_t room = (int64_t)(jit_memory_free() / 2) - LT_WORKSPACE;
    while (n > SMALL && n * n * (2 * element + dtype_bytes(p->result, 1)) > room) n /= 2;
    return n;
}

static bool make_plan(const struct timer *t, struct product *p)
{
    char text[256];
    const char *in = dtype_name(p->dtype);
    coda_compile_options opt = CODA_COMPILE_OPTIONS_INIT;
    long long n = p->n;
    format_line(text, sizeof text,
                "%%x = input %s[%lld,%lld]\n%%w = weight %s[%lld,%lld]\n%%p = matmul %%x, %%w\n"
                "output %%y = %%p\n",
                in, n, n, in, n, n);
    opt.device = t->run->plan->device;
    graph *g = graph_parse(text);
    bool good = g && !compile_graph(&p->plan, g, &opt, NULL);
    graph_free(g);
    return good;
}

static coda_status multiply(const struct timer *t, void *context)
{
    struct product *p = context;
    void *args[] = {p->x, p->w, p->y};
    return executable_run(p->plan, args, NULL, p->workspace, is_gpu(t) ? jit_clock_stream(t->clock) : NULL,
                          &t->options);
}

static coda_status multiply_lt(const struct timer *t, void *context)
{
    char err[JIT_ERROR_SIZE];
    struct product *p = context;
    coda_status status = jit_lt_run(p->lt, p->x, p->w, p->y, p->workspace, jit_clock_stream(t->clock), err);
    return status ? fail(status, "profile: %s", err) : CODA_OK;
}

static void keep_best(const struct timer *t, struct product *p, work *fn, double *rate)
{
    double us = 0, n = (double)p->n;
    if (!time_work(t, fn, p, &us) && us > 0) *rate = MAX(*rate, 2e6 * n * n * n / us);
}

static void measure(const struct timer *t, struct product *p, double *rate)
{
    char err[JIT_ERROR_SIZE];
    bool planned = make_plan(t, p);
    int64_t bytes = planned ? p->plan->plan.workspace : 0;
    p->workspace = allocate(t, (size_t)MAX(bytes, is_gpu(t) ? LT_WORKSPACE : 256));
    if (!p->workspace) return;
    if (planned) keep_best(t, p, multiply, rate);
    struct jit_lt_shape s = {.in = p->dtype,
                             .out = p->result,
                             .batch = 1,
                             .m = p->n,
                             .n = p->n,
                             .k = p->n,
                             .lda = p->n,
                             .ldb = p->n,
                             .ldd = p->n,
                             .workspace = LT_WORKSPACE};
    if (is_gpu(t) && !jit_lt_new(&p->lt, &s, err)) keep_best(t, p, multiply_lt, rate);
}

/* What goes wrong here is no failure of the profile. */
coda_status rate_of_products(const struct timer *t, coda_dtype dtype, double *rate)
{
    struct failure before;
    struct product p = {.dtype = dtype, .result = dtype_is_f8(dtype) ? CODA_F32 : dtype};
    *rate = 0;
    fail_save(&before);
    p.n = choose_size(t, &p);
    size_t bytes = (size_t)dtype_bytes(dtype, p.n * p.n);
    p.x = allocate(t, bytes);
    p.w = allocate(t, bytes);
    p.y = allocate(t, (size_t)dtype_bytes(p.result, p.n * p.n));
    bool good = p.x && p.w && p.y && fill(t, p.x, dtype, p.n * p.n) && fill(t, p.w, dtype, p.n * p.n);
    if (good) measure(t, &p, rate);
    jit_lt_free(p.lt);
    executable_free(p.plan);
    void *const memory[] = {p.x, p.w, p.y, p.workspace};
    for (int i = 0; i < ARRAY_SIZE(memory); i++) release(t, memory[i]);
    fail_restore(&before);
    return CODA_OK;
}
