/*
 * latency.c -- what a plan costs the host: kernels compiled cold and found in the cache, a block
 * planned, and a launch.
 *
 *     cold/NAME    NVRTC alone, for one GEMM with its epilogue, no cache
 *     compile/NAME all of coda_compile for it, no cache
 *     warm/NAME    the same from the cache on disk
 *     plan/NAME    graph, rewrites, plan and CUDA text of LLaMA layers; nothing is compiled
 *     threads/N    all of coda_compile for the block, no cache, its kernels on N threads: as long as the
 *                  longest kernel takes, if there are as many cores as kernels
 *     launch/NAME  coda_run above bare launches of the same kernels, for each launch
 *
 * The bare launches take the kernels and arguments out of a captured CUDA graph and give them to
 * cuLaunchKernelEx; both kinds are enqueued in turns on one stream and timed until the last call
 * returns, the queue empty before and never full. Without a GPU, "launch" is left out and kernels are
 * compiled for sm_90a.
 */
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "bench.h"
#include "options.h"
#include "usage.h"

enum { TRIES = 7, BATCHES = 201, BATCH = 32, NODES = 16 };

struct latency {
    struct report report;
    struct machine machine;
    coda_device device;
    char dir[32];
    coda_cache *cache; /* in dir */
};

static double now(void) { return clock_us() * 1e-3; } /* milliseconds */

static coda_plan *compile(const struct latency *l, const coda_graph *g, unsigned flags)
{
    coda_compile_options opt = CODA_COMPILE_OPTIONS_INIT;
    coda_plan *p;
    opt.device = l->device;
    opt.flags = flags;
    opt.cache = l->cache;
    if (coda_compile(&p, g, &opt) == CODA_OK) return p;
    fprintf(stderr, "perf: %s\n", coda_error());
    exit(1);
}

static void say(struct latency *l, const char *kind, const char *name, const char *unit, double *v, int n)
{
    char full[96];
    double mid = median(v, n);
    snprintf(full, sizeof full, "%s/%s", kind, name);
    report_case(&l->report, full);
    fprintf(l->report.json, ", \"%s\": %.6g, \"min\": %.6g, \"max\": %.6g, \"rounds\": %d", unit, mid, v[0],
            v[n - 1], n);
    report_end_case(&l->report);
    printf("%-28s %9.3f %s   %.3f .. %.3f\n", full, mid, unit, v[0], v[n - 1]);
    fflush(stdout);
}

/* ---- Graphs ---- */

enum { SWIGLU, ROPE, LOSS, EPILOGUES };
static const char *const epilogue_name[EPILOGUES] = {"swiglu", "rope", "loss"};

static coda_graph *fused(int epilogue)
{
    const int64_t m = 16384, n = 12288, k = 4096;
    coda_graph *g = coda_graph_new();
    coda_value x = coda_input(g, "x", CODA_BF16, 2, (int64_t[]){m, k});
    coda_value y = coda_matmul(g, x, coda_weight(g, "w", CODA_BF16, 2, (int64_t[]){n, k}));
    y = coda_mul(g, y, coda_input(g, "scale", CODA_F32, 2, (int64_t[]){m, 1}));
    coda_rope_options rope = CODA_ROPE_OPTIONS_INIT;
    rope.head_dim = 128;
    if (epilogue == SWIGLU) y = coda_swiglu(g, y, CODA_STACKED);
    if (epilogue == ROPE) y = coda_rope(g, y, CODA_NONE, &rope);
    if (epilogue == LOSS) y = coda_log_sum_exp(g, y);
    coda_output(g, "y", y);
    return g;
}

static coda_value projected(coda_graph *g, coda_value x, const char *name, int64_t n, int64_t k)
{
    return coda_matmul(g, x, coda_weight(g, name, CODA_BF16, 2, (int64_t[]){n, k}));
}

/* A weight of layer l. */
static coda_value own(coda_graph *g, const char *name, int l, int rank, int64_t n, int64_t k)
{
    char numbered[32];
    snprintf(numbered, sizeof numbered, "%s.%d", name, l);
    return coda_weight(g, l ? numbered : name, CODA_BF16, rank, (int64_t[]){n, k});
}

static coda_value layer(coda_graph *g, coda_value x, int l, int64_t d, int64_t heads, int64_t f)
{
    coda_value part[3], gain = own(g, "gain", l, 1, d, 1), gain_mlp = own(g, "gain_mlp", l, 1, d, 1);
    coda_rope_options rope = CODA_ROPE_OPTIONS_INIT;
    rope.head_dim = d / heads;
    rope.heads = 2 * heads;
    coda_attention_options attention = CODA_ATTENTION_OPTIONS_INIT;
    attention.heads = heads;
    attention.causal = 1;
    coda_value qkv = coda_matmul(g, coda_rms_norm(g, x, gain, 1e-5f), own(g, "w_qkv", l, 2, 3 * d, d));
    qkv = coda_rope(g, qkv, CODA_NONE, &rope);
    for (int i = 0; i < 3; i++) part[i] = coda_slice(g, qkv, 1, i * d, (i + 1) * d, 1);
    coda_value a = coda_attention(g, part[0], part[1], part[2], CODA_NONE, &attention);
    coda_value h = coda_add(g, coda_matmul(g, a, own(g, "w_o", l, 2, d, d)), x);
    coda_value n = coda_rms_norm(g, h, gain_mlp, 1e-5f);
    coda_value z = coda_swiglu(g, coda_matmul(g, n, own(g, "w_gate_up", l, 2, 2 * f, d)), CODA_STACKED);
    return coda_add(g, coda_matmul(g, z, own(g, "w_down", l, 2, d, f)), h);
}

static coda_graph *blocks(int layers, int64_t tokens, int64_t d, int64_t heads, int64_t f)
{
    coda_graph *g = coda_graph_new();
    coda_value x = coda_input(g, "x", CODA_BF16, 2, (int64_t[]){tokens, d});
    for (int l = 0; l < layers; l++) x = layer(g, x, l, d, heads, f);
    coda_output(g, "y", x);
    return g;
}

static coda_graph *tiny(void)
{
    const int64_t size = 64;
    coda_graph *g = coda_graph_new();
    coda_value x = coda_input(g, "x", CODA_BF16, 2, (int64_t[]){size, size});
    coda_output(g, "y", coda_silu(g, projected(g, x, "w", size, size)));
    return g;
}

/* ---- Compiling ---- */

/* The slowest kernel's time in NVRTC. */
static double nvrtc_ms(const coda_plan *p)
{
    double ms = 0;
    for (int i = 0; i < coda_plan_kernels(p); i++) {
        coda_kernel_info k = CODA_KERNEL_INFO_INIT;
        coda_plan_kernel(p, i, &k);
        ms = fmax(ms, k.compile_ms);
    }
    return ms;
}

static double compile_once(struct latency *l, const coda_graph *g, unsigned flags, double *nvrtc)
{
    double from = now();
    coda_plan *p = compile(l, g, flags);
    double ms = now() - from;
    *nvrtc = nvrtc_ms(p);
    coda_plan_free(p);
    return ms;
}

static void measure_compiles(struct latency *l)
{
    double cold[TRIES], all[TRIES], warm[TRIES], ignored;
    for (int e = 0; e < EPILOGUES; e++) {
        coda_graph *g = fused(e);
        if (e == 0) {
            all[0] = compile_once(l, g, CODA_NO_CACHE, &cold[0]);
            say(l, "compile", "first in a process", "ms", all, 1);
        }
        for (int i = 0; i < TRIES; i++) all[i] = compile_once(l, g, CODA_NO_CACHE, &cold[i]);
        compile_once(l, g, 0, &ignored); /* fills the cache */
        for (int i = 0; i < TRIES; i++) {
            coda_cache_forget(l->cache);
            warm[i] = compile_once(l, g, 0, &ignored);
        }
        say(l, "cold", epilogue_name[e], "ms", cold, TRIES);
        say(l, "compile", epilogue_name[e], "ms", all, TRIES);
        say(l, "warm", epilogue_name[e], "ms", warm, TRIES);
        coda_graph_free(g);
    }
}

static void measure_plan(struct latency *l, const char *name, int layers, int tries)
{
    double ms[10 * TRIES];
    for (int i = 0; i < tries; i++) {
        double from = now();
        coda_graph *g = blocks(layers, 2048, 4096, 32, 11008);
        coda_plan *p = compile(l, g, CODA_PLAN_ONLY);
        ms[i] = now() - from;
        coda_plan_free(p);
        coda_graph_free(g);
    }
    say(l, "plan", name, "ms", ms, tries);
}

static void measure_plans(struct latency *l)
{
    char name[32];
    measure_plan(l, "block", 1, 10 * TRIES);
    for (int layers = 16; layers <= 128; layers *= 2) {
        snprintf(name, sizeof name, "%d layers", layers);
        measure_plan(l, name, layers, TRIES);
    }
}

/* What NVRTC took for each kernel, alone: on one thread. */
static void print_kernels(const coda_plan *p)
{
    double sum = 0;
    for (int i = 0; i < coda_plan_kernels(p); i++) {
        coda_kernel_info k = CODA_KERNEL_INFO_INIT;
        coda_plan_kernel(p, i, &k);
        printf("  %-60s %9.3f ms\n", k.name, k.compile_ms);
        sum += k.compile_ms;
    }
    printf("  %-60s %9.3f ms, the longest %.3f\n", "their sum", sum, nvrtc_ms(p));
}

/* The demo's block, cold. */
static void measure_threads(struct latency *l)
{
    enum { COLD = 3 };
    coda_graph *g = blocks(1, 2048, 4096, 32, 11008);
    for (int threads = 1; threads <= 16; threads *= 2) {
        char n[16];
        double ms[COLD];
        snprintf(n, sizeof n, "%d", threads);
        setenv("CODA_COMPILE_THREADS", n, 1);
        for (int i = 0; i < COLD; i++) {
            double from = now();
            coda_plan *p = compile(l, g, CODA_NO_CACHE);
            ms[i] = now() - from;
            if (threads == 1 && i == COLD - 1) print_kernels(p);
            coda_plan_free(p);
        }
        say(l, "threads", n, "ms", ms, COLD);
    }
    unsetenv("CODA_COMPILE_THREADS");
    coda_graph_free(g);
}

/* ---- Launching ---- */

struct subject {
    coda_plan *plan;
    void *args[ARGS], *work;
    graph captured; /* keeps the kernels' arguments */
    struct kernel_params kernel[NODES];
    size_t kernels;
};

static void run(const struct latency *l, const struct subject *s)
{
    if (coda_run(s->plan, s->args, NULL, s->work, l->machine.stream) == CODA_OK) return;
    fprintf(stderr, "perf: %s\n", coda_error());
    exit(1);
}

static void launch_bare(const struct latency *l, const struct subject *s)
{
    for (size_t i = 0; i < s->kernels; i++) {
        const struct kernel_params *k = &s->kernel[i];
        struct launch_config c = {.shared_bytes = k->shared_bytes, .stream = l->machine.stream};
        memcpy(c.grid, k->grid, sizeof c.grid);
        memcpy(c.block, k->block, sizeof c.block);
        function kernel = k->f ? k->f : (function)k->kernel;
        must(l->machine.launch(&c, kernel, k->params, k->extra), "cuLaunchKernelEx");
    }
}

static address zeroed(const struct latency *l, size_t bytes)
{
    address at;
    must(l->machine.alloc(&at, bytes + 256), "cuMemAlloc");
    must(l->machine.set(at, 0, bytes + 256), "cuMemsetD8");
    return at;
}

static void load(const struct latency *l, struct subject *s, const coda_graph *g)
{
    const struct machine *m = &l->machine;
    node nodes[NODES];
    s->plan = compile(l, g, 0);
    for (int i = 0; i < coda_plan_args(s->plan); i++) {
        coda_arg_info a = CODA_ARG_INFO_INIT;
        coda_plan_arg(s->plan, i, &a);
        s->args[i] = (void *)zeroed(l, a.bytes);
    }
    s->work = (void *)zeroed(l, coda_plan_workspace(s->plan));
    must(m->stream_wait(NULL), "cuMemsetD8");
    must(m->capture_begin(m->stream, 2), "cuStreamBeginCapture");
    run(l, s);
    must(m->capture_end(m->stream, &s->captured), "cuStreamEndCapture");
    s->kernels = NODES;
    must(m->graph_nodes(s->captured, nodes, &s->kernels), "cuGraphGetNodes");
    for (size_t i = 0; i < s->kernels; i++)
        must(m->kernel_get(nodes[i], &s->kernel[i]), "cuGraphKernelNodeGetParams");
}

/* Microseconds for each launch of a batch. */
static double batch(const struct latency *l, const struct subject *s,
                    void (*enqueue)(const struct latency *, const struct subject *))
{
    double from = now();
    for (int i = 0; i < BATCH; i++) enqueue(l, s);
    double us = (now() - from) * 1e3;
    must(l->machine.stream_wait(l->machine.stream), "a batch");
    return us / BATCH / (double)s->kernels;
}

static void measure_launches(struct latency *l, const char *name, coda_graph *g)
{
    static double coda[BATCHES], bare[BATCHES], more[BATCHES];
    struct subject s = {0};
    char label[64];
    load(l, &s, g);
    for (int i = -10; i < BATCHES; i++) {
        int at = i < 0 ? 0 : i;
        coda[at] = batch(l, &s, run);
        bare[at] = batch(l, &s, launch_bare);
        more[at] = coda[at] - bare[at];
    }
    snprintf(label, sizeof label, "%s of %d", name, (int)s.kernels);
    say(l, "run", label, "us", coda, BATCHES);
    say(l, "bare", label, "us", bare, BATCHES);
    say(l, "launch", label, "us", more, BATCHES);
    must(l->machine.graph_free(s.captured), "cuGraphDestroy");
    coda_plan_free(s.plan);
    coda_graph_free(g);
}

/* With patterns it measures nothing unless one is "latency". -1: it does; else the exit status. */
static int read_options(char **argv, const char **out)
{
    bool quick, named = false; /* `make perf` tells all programs; this one always is */
    const struct option option[] = {{"--out", .word = out}, {"--quick", .given = &quick}};
    int names = options_read("latency", argv, option, sizeof option / sizeof *option);
    if (names < 0) return 2;
    for (int i = 0; i < names; i++) named = named || !strcmp(argv[i], "latency");
    if (names && !named) return 0;
    if (names && !*out) *out = "/dev/null";
    return -1;
}

int main(int argc, char **argv)
{
    struct latency l = {.device = CODA_DEVICE_NONE, .dir = "/tmp/coda-perf-XXXXXX"};
    const char *out = NULL;
    char remove[64];
    if (usage_asked(argv, "usage: latency [--quick] [--out FILE]\n"
                          "What a plan costs the host: kernels cold and from the cache, planning, launches."))
        return 0;
    int status = read_options(argv + (argc > 0), &out);
    if (status >= 0) return status;
    coda_cache_options where = CODA_CACHE_OPTIONS_INIT;
    if (!mkdtemp(l.dir)) return perror(l.dir), 1;
    where.dir = l.dir;
    if (coda_cache_open(&l.cache, &where) != CODA_OK) return puts(coda_error()), 1;
    bool gpu = machine_exists();
    if (gpu) {
        machine_open(&l.machine);
        l.device = CODA_DEVICE_GPU;
    }
    report_begin(&l.report, "latency", out || gpu ? out : "/dev/null");
    measure_plans(&l);
    measure_threads(&l);
    measure_compiles(&l);
    if (gpu) {
        measure_launches(&l, "one", tiny());
        measure_launches(&l, "block", blocks(1, 64, 128, 2, 256));
    }
    snprintf(remove, sizeof remove, "rm -rf %s", l.dir);
    if (system(remove) != 0) fprintf(stderr, "perf: %s is left behind\n", l.dir);
    coda_cache_free(l.cache);
    return report_end(&l.report);
}
