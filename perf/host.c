/*
 * host.c -- what a call of a plan over symbols costs the host: a LLaMA block over `dim T`.
 *
 *     first/cold  coda_compile and the first run, of CODA_POLICY_BACKGROUND, without a cache
 *     first/warm  the same with all kernels in the cache on disk
 *     run/exact   coda_run of an exact plan at one number of tokens, until it returns
 *     run/seen    coda_run_shaped of the same, which ran before
 *     run/turns   the same of some that ran before, one after the other
 *     new/base    the first run of a number of tokens with CODA_POLICY_NEVER: kernels that serve any shape
 *     new/best    the same with its own kernels, which all are loaded
 *     new/early   the same while those are not there, and are made in the background
 *     stream/cold calls of CODA_POLICY_BACKGROUND from the start, without a cache, of any tokens; and
 *     stream/later  the same once nothing is left to be made: look at the longest
 *
 * Each figure is the host's time of a call, the stream empty before it. --tokens N and --width N give other
 * blocks; the emulator runs small ones (LD_LIBRARY_PATH=build/emulator, with CODA_CUDA_LIB and CODA_LIBCUDA).
 */
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "bench.h"
#include "options.h"
#include "usage.h"

enum { MOST_CALLS = 4096, ARGUMENTS = 8, KEPT = 16, HEAD = 128 };

struct host {
    struct report report;
    struct machine machine;
    coda_cache *cache;
    char dir[32];
    int64_t tokens, width;
    int calls;                    /* of most figures */
    void *args[ARGUMENTS], *work; /* for the largest */
    double call[MOST_CALLS];
    uint64_t seed;
};

static void die(const char *what)
{
    fprintf(stderr, "perf: %s: %s\n", what, coda_error());
    exit(1);
}

static void say(struct host *s, const char *name, const char *unit, int n)
{
    double mid = median(s->call, n);
    report_case(&s->report, name);
    fprintf(s->report.json, ", \"%s\": %.6g, \"min\": %.6g, \"max\": %.6g, \"rounds\": %d", unit, mid,
            s->call[0], s->call[n - 1], n);
    report_end_case(&s->report);
    printf("%-12s %10.2f %s   %.2f .. %.2f, nine tenths below %.2f, of %d\n", name, mid, unit, s->call[0],
           s->call[n - 1], s->call[n * 9 / 10], n);
    fflush(stdout);
}

/* ---- The block ---- */

static coda_value weight(coda_graph *g, const char *name, int64_t n, int64_t k)
{
    return coda_weight(g, name, CODA_BF16, k ? 2 : 1, (int64_t[]){n, k});
}

static coda_graph *block(const struct host *s)
{
    const int64_t d = s->width, heads = d / HEAD, f = d * 43 / 16 / 64 * 64;
    coda_graph *g = coda_graph_new();
    coda_value x = coda_input(g, "x", CODA_BF16, 2, (int64_t[]){coda_symbol(g, "T", 1, s->tokens, 1), d});
    coda_rope_options rope = CODA_ROPE_OPTIONS_INIT;
    coda_attention_options attention = CODA_ATTENTION_OPTIONS_INIT;
    coda_value part[3];
    rope.head_dim = HEAD, rope.heads = 2 * heads;
    attention.heads = heads, attention.causal = 1;
    coda_value n1 = coda_rms_norm(g, x, weight(g, "gain", d, 0), 1e-5f);
    coda_value qkv = coda_rope(g, coda_matmul(g, n1, weight(g, "qkv", 3 * d, d)), CODA_NONE, &rope);
    for (int i = 0; i < 3; i++) part[i] = coda_slice(g, qkv, 1, i * d, (i + 1) * d, 1);
    coda_value a = coda_attention(g, part[0], part[1], part[2], CODA_NONE, &attention);
    coda_value h = coda_add(g, coda_matmul(g, a, weight(g, "o", d, d)), x);
    coda_value n2 = coda_rms_norm(g, h, weight(g, "gain_mlp", d, 0), 1e-5f);
    coda_value z = coda_swiglu(g, coda_matmul(g, n2, weight(g, "gate_up", 2 * f, d)), CODA_STACKED);
    coda_output(g, "y", coda_add(g, coda_matmul(g, z, weight(g, "down", d, f)), h));
    return g;
}

static coda_plan *compiled(const struct host *s, const coda_graph *g, coda_policy policy, unsigned flags)
{
    coda_compile_options opt = CODA_COMPILE_OPTIONS_INIT;
    coda_plan *p;
    opt.policy = policy, opt.flags = flags, opt.cache = s->cache;
    if (coda_compile(&p, g, &opt) != CODA_OK) die("compile");
    return p;
}

static void allocate(struct host *s, const coda_plan *p)
{
    address at;
    for (int i = 0; i < coda_plan_args(p); i++) {
        coda_arg_info a = CODA_ARG_INFO_INIT;
        coda_plan_arg(p, i, &a);
        must(s->machine.alloc(&at, a.bytes + 256), "cuMemAlloc");
        must(s->machine.set(at, 0, a.bytes), "cuMemsetD8");
        s->args[i] = (void *)at;
    }
    must(s->machine.alloc(&at, coda_plan_workspace(p) + 256), "cuMemAlloc");
    s->work = (void *)at;
}

/* ---- Calls ---- */

/* Microseconds of a call, from an empty stream. */
static double run(struct host *s, const coda_plan *p, int64_t tokens)
{
    coda_run_options opt = CODA_RUN_OPTIONS_INIT;
    opt.dims = &tokens, opt.dim_count = 1;
    must(s->machine.stream_wait(s->machine.stream), "a run");
    double from = clock_us();
    coda_status status = tokens ? coda_run_shaped(p, s->args, NULL, s->work, s->machine.stream, &opt)
                                : coda_run(p, s->args, NULL, s->work, s->machine.stream);
    double us = clock_us() - from;
    if (status) die("run");
    return us;
}

static int64_t any_tokens(struct host *s)
{
    s->seed = s->seed * 6364136223846793005u + 1442695040888963407u;
    return 1 + (int64_t)((s->seed >> 33) % (uint64_t)s->tokens);
}

/* The n-th of some that lie about evenly. */
static int64_t nth(const struct host *s, int n, int all) { return s->tokens - (s->tokens - 1) * n / all; }

static void warm(const coda_plan *p, int64_t tokens)
{
    coda_warm_options opt = CODA_WARM_OPTIONS_INIT;
    opt.dims = &tokens, opt.bindings = 1;
    if (coda_warm(p, &opt) != CODA_OK) die("warm");
}

static void await_background(const coda_plan *p)
{
    coda_shape_stats t = CODA_SHAPE_STATS_INIT;
    do usleep(1000), coda_shape_stats_get(p, &t);
    while (t.pending);
}

/* ---- Figures ---- */

static void measure_first(struct host *s, const coda_graph *g, const char *name, unsigned flags, int times)
{
    for (int i = -!flags; i < times; i++) { /* without flags the first one fills the cache */
        coda_cache_forget(s->cache);
        double from = clock_us();
        coda_plan *p = compiled(s, g, CODA_POLICY_BACKGROUND, flags);
        double to = clock_us();
        if (!s->work) allocate(s, p);
        double ms = (to - from + run(s, p, nth(s, 1, 3))) * 1e-3;
        if (i >= 0) s->call[i] = ms;
        coda_plan_free(p);
    }
    say(s, name, "ms", times);
}

static void measure_seen(struct host *s, const coda_graph *g, const coda_plan *p)
{
    const int64_t tokens = nth(s, 1, 8);
    int n = 0;
    coda_graph *one;
    if (coda_graph_bind(&one, g, &tokens, 1) != CODA_OK) die("bind");
    coda_plan *exact = compiled(s, one, CODA_POLICY_WAIT, 0);
    for (n = -20; n < 500; n++) s->call[n < 0 ? 0 : n] = run(s, exact, 0);
    say(s, "run/exact", "us", n);
    for (n = -20; n < 500; n++) s->call[n < 0 ? 0 : n] = run(s, p, tokens);
    say(s, "run/seen", "us", n);
    for (n = -2 * KEPT; n < 500; n++) s->call[n < 0 ? 0 : n] = run(s, p, nth(s, (n + 2 * KEPT) % KEPT, KEPT));
    say(s, "run/turns", "us", n);
    coda_plan_free(exact);
    coda_graph_free(one);
}

/* Among 64 shapes that are kept, of all that there are, few come twice. */
static void measure_new(struct host *s, const coda_plan *p, const char *name, int times)
{
    int n = 0;
    for (int tries = 0; n < times && tries < 8 * times; tries++) {
        int64_t tokens = any_tokens(s);
        coda_shape_stats before = CODA_SHAPE_STATS_INIT, after = CODA_SHAPE_STATS_INIT;
        coda_shape_stats_get(p, &before);
        double us = run(s, p, tokens);
        coda_shape_stats_get(p, &after);
        if (after.planned > before.planned) s->call[n++] = us;
    }
    say(s, name, "us", n);
}

static void measure_stream(struct host *s, const coda_graph *g, int times)
{
    coda_plan *p = compiled(s, g, CODA_POLICY_BACKGROUND, CODA_NO_CACHE);
    measure_new(s, p, "new/early", 64);
    for (int i = 0; i < times; i++) s->call[i] = run(s, p, any_tokens(s));
    say(s, "stream/cold", "us", times);
    await_background(p);
    for (int i = 0; i < times; i++) s->call[i] = run(s, p, any_tokens(s));
    say(s, "stream/later", "us", times);
    coda_plan_free(p);
}

static void measure_all(struct host *s, int times)
{
    coda_graph *g = block(s);
    measure_first(s, g, "first/cold", CODA_NO_CACHE, 3);
    measure_first(s, g, "first/warm", 0, 5);
    coda_plan *never = compiled(s, g, CODA_POLICY_NEVER, 0);
    measure_new(s, never, "new/base", times);
    coda_plan_free(never);
    coda_plan *p = compiled(s, g, CODA_POLICY_WAIT, 0);
    for (int64_t t = 1; t <= s->tokens; t += t < 20 ? 1 : t < 130 ? 4 : 64) warm(p, t);
    warm(p, s->tokens);
    for (int i = 0; i < 2 * times; i++) run(s, p, any_tokens(s));
    measure_new(s, p, "new/best", times);
    measure_seen(s, g, p);
    coda_plan_free(p);
    measure_stream(s, g, times);
    coda_graph_free(g);
}

/* With patterns it measures nothing unless one is "host". -1: it does; else the exit status. */
static int read_options(char **argv, struct host *s, const char **out)
{
    bool quick = false, named = false;
    const struct option option[] = {{"--tokens", .number = &s->tokens},
                                    {"--width", .number = &s->width},
                                    {"--out", .word = out},
                                    {"--quick", .given = &quick}};
    int names = options_read("host", argv, option, sizeof option / sizeof *option);
    if (names < 0) return 2;
    for (int i = 0; i < names; i++) named = named || !strcmp(argv[i], "host");
    if (names && !named) return 0;
    if (names && !*out) *out = "/dev/null";
    s->calls = quick || s->tokens < 1000 ? 40 : 500;
    return -1;
}

int main(int argc, char **argv)
{
    static struct host s = {.tokens = 4096, .width = 4096, .dir = "/tmp/coda-perf-XXXXXX", .seed = 1};
    const char *out = NULL;
    char remove[64];
    if (usage_asked(argv,
                    "usage: host [--quick] [--tokens N] [--width N] [--out FILE]\n"
                    "What a call of a plan over symbols costs the host, for a LLaMA block; needs a GPU."))
        return 0;
    int status = read_options(argv + (argc > 0), &s, &out);
    if (status >= 0) return status;
    if (!machine_exists()) return puts("perf: host needs a GPU"), 0;
    coda_cache_options where = CODA_CACHE_OPTIONS_INIT;
    if (!mkdtemp(s.dir)) return perror(s.dir), 1;
    where.dir = s.dir;
    if (coda_cache_open(&s.cache, &where) != CODA_OK) return puts(coda_error()), 1;
    machine_open(&s.machine);
    report_begin(&s.report, "host", out);
    measure_all(&s, s.calls);
    snprintf(remove, sizeof remove, "rm -rf %s", s.dir);
    if (system(remove) != 0) fprintf(stderr, "perf: %s is left behind\n", s.dir);
    coda_cache_free(s.cache);
    return report_end(&s.report);
}
