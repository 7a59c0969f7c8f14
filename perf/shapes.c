/*
 * shapes.c -- one plan of a LLaMA-7B block for every number of tokens, by the policy that waits for nothing,
 * on an empty cache: what a server's steps cost the host while better kernels are made, and after.
 *
 *     shapes [--quick] [--out FILE]
 *
 *     first      coda_compile and the first run, to its end: milliseconds
 *     unsettled  host time of coda_run_shaped of random numbers of tokens, right after it: microseconds
 *     settled    the same once the background is done; and of the same numbers once more
 *     sealed     the same numbers, and others, after coda_plan_seal
 *     rows/T     a run's time over that of a plan for T tokens alone, runs in turns
 *
 * Kernels of the sides compared come out of one cache. Results of both are compared: they may differ by
 * rounding, since tiles of the exact plan are its own.
 */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "machine.h"

enum { MOST = 4096, HIDDEN = 4096, ARGS = 8, DRAINED = 16, ROUNDS = 11, RUNS = 8, CHECKED = 4096 };
#define AGREE 0.02

static const char text[] = "dim %T = 1..4096\n%x = input bf16[T,4096]\n%attn_gain = weight bf16[4096]\n"
                           "%w_qkv = weight bf16[12288,4096]\n%w_o = weight bf16[4096,4096]\n"
                           "%mlp_gain = weight bf16[4096]\n%w_gate_up = weight bf16[22016,4096]\n"
                           "%w_down = weight bf16[4096,11008]\n%n1 = rms_norm %x, %attn_gain {eps=1e-5}\n"
                           "%qkv = matmul %n1, %w_qkv\n"
                           "%r = rope %qkv {base=10000,head_dim=128,rotary=128,heads=64,half=1}\n"
                           "%q = slice %r {axis=1,start=0,stop=4096,step=1}\n"
                           "%k = slice %r {axis=1,start=4096,stop=8192,step=1}\n"
                           "%v = slice %r {axis=1,start=8192,stop=12288,step=1}\n"
                           "%a = attention %q, %k, %v "
                           "{scale=0.08838834764831845,heads=32,kv_heads=32,causal=1}\n"
                           "%o = matmul %a, %w_o\n%h = add %o, %x\n"
                           "%n2 = rms_norm %h, %mlp_gain {eps=1e-5}\n%gu = matmul %n2, %w_gate_up\n"
                           "%gate = slice %gu {axis=1,start=0,stop=11008,step=1}\n"
                           "%up = slice %gu {axis=1,start=11008,stop=22016,step=1}\n%m = swiglu %gate, %up\n"
                           "%d = matmul %m, %w_down\n%s = add %d, %h\noutput %y = %s\n";
static const int64_t rows[] = {1, 2, 7, 16, 40, 64, 100, 128, 300, 777, 1024, 1500, 2048, 3000, 4096};

struct test {
    struct machine m;
    coda_graph *g;
    coda_plan *plan;
    address at[ARGS], work, prepared;
    void *args[ARGS];
    FILE *out;
};

static void good(coda_status s, const char *what)
{
    if (s == CODA_OK) return;
    fprintf(stderr, "perf: %s: %s\n", what, coda_error());
    exit(1);
}

static uint64_t random_bits(uint64_t *state)
{
    *state += 0x9e3779b97f4a7c15u;
    uint64_t z = (*state ^ *state >> 30) * 0xbf58476d1ce4e5b9u;
    z = (z ^ z >> 27) * 0x94d049bb133111ebu;
    return z ^ z >> 31;
}

/* As many small numbers of tokens as large ones. */
static int64_t draw(uint64_t *state)
{
    double u = (double)(random_bits(state) >> 11) * 0x1p-53;
    int64_t n = (int64_t)exp2(u * 12.0);
    return n < 1 ? 1 : n > MOST ? MOST : n;
}

/* ---- Memory: bf16 between -amount and amount ---- */

static address filled(const struct machine *m, size_t bytes, float amount)
{
    address at;
    uint16_t *host = malloc(bytes);
    must(!host || m->alloc(&at, bytes), "memory");
    uint64_t state = bytes;
    for (size_t i = 0; i < bytes / 2; i++) {
        float x = ((float)(random_bits(&state) >> 40) * 0x1p-23f - 1) * amount;
        uint32_t bits;
        memcpy(&bits, &x, 4);
        host[i] = (uint16_t)(bits >> 16);
    }
    must(m->upload(at, host, bytes), "upload");
    free(host);
    return at;
}

static void open_memory(struct test *t)
{
    for (int i = 0; i < ARGS; i++) {
        coda_arg_info a = CODA_ARG_INFO_INIT;
        good(coda_plan_arg(t->plan, i, &a), "coda_plan_arg");
        t->at[i] = filled(&t->m, a.bytes, a.rank == 2 && i ? 0.027f : 1.7f);
        t->args[i] = (void *)(uintptr_t)t->at[i];
    }
    size_t work = coda_plan_workspace(t->plan), prepared = coda_plan_prepared(t->plan);
    must(t->m.alloc(&t->work, work ? work : 1) || t->m.alloc(&t->prepared, prepared ? prepared : 1),
         "memory");
}

static void prepare(const struct test *t, const coda_plan *p)
{
    good(coda_prepare(p, t->args, (void *)(uintptr_t)t->prepared, (void *)(uintptr_t)t->work, t->m.stream),
         "coda_prepare");
}

/* ---- Runs ---- */

static double shaped(const struct test *t, int64_t n)
{
    coda_run_options opt = CODA_RUN_OPTIONS_INIT;
    opt.dims = &n, opt.dim_count = 1;
    double start = clock_us();
    coda_status s = coda_run_shaped(t->plan, t->args, (void *)(uintptr_t)t->prepared,
                                    (void *)(uintptr_t)t->work, t->m.stream, &opt);
    double took = clock_us() - start;
    good(s, "coda_run_shaped");
    return took;
}

static int rising(const void *a, const void *b)
{
    double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

/* Of `count` runs; the stream is waited for now and then, so that no run waits for room in it. */
static void calls(const struct test *t, const char *name, int count, uint64_t seed)
{
    double *us = malloc(sizeof *us * (size_t)count);
    must(!us, "malloc");
    int slow = 0;
    for (int i = 0; i < count; i++) {
        us[i] = shaped(t, draw(&seed));
        slow += us[i] > 5000;
        if (i % DRAINED == 0) must(t->m.stream_wait(t->m.stream), "run");
    }
    must(t->m.stream_wait(t->m.stream), "run");
    qsort(us, (size_t)count, sizeof *us, rising);
    coda_shape_stats s = CODA_SHAPE_STATS_INIT;
    good(coda_shape_stats_get(t->plan, &s), "coda_shape_stats_get");
    double middle = us[count / 2], late = us[count - 1 - count / 1000], last = us[count - 1];
    printf("%-10s %6d runs: host %8.1f us, %8.1f of a thousand, %9.1f at most, %d above 5 ms; %lld planned, "
           "%lld improved, %lld pending, %lld kernels\n",
           name, count, middle, late, last, slow, (long long)s.planned, (long long)s.improved,
           (long long)s.pending, (long long)s.kernels);
    fprintf(t->out,
            ",\n{\"case\": \"shapes/%s\", \"runs\": %d, \"host_us\": {\"median\": %.2f, \"p999\": %.1f, "
            "\"max\": %.1f}, \"above_5_ms\": %d, \"planned\": %lld, \"improved\": %lld, \"kernels\": %lld}",
            name, count, middle, late, last, slow, (long long)s.planned, (long long)s.improved,
            (long long)s.kernels);
    free(us);
}

static void settle(const struct test *t, double seconds)
{
    coda_shape_stats s = CODA_SHAPE_STATS_INIT;
    for (double end = clock_us() + seconds * 1e6; clock_us() < end; usleep(20000)) {
        good(coda_shape_stats_get(t->plan, &s), "coda_shape_stats_get");
        if (!s.pending) return;
    }
    printf("not settled: %lld pending\n", (long long)s.pending);
}

/* Captured runs of the plan of all shapes, or of an exact one. */
static replay captured(const struct test *t, const coda_plan *exact, int64_t n)
{
    graph g;
    replay r;
    must(t->m.capture_begin(t->m.stream, 0), "capture");
    for (int i = 0; i < RUNS; i++) {
        if (!exact) shaped(t, n);
        else
            good(coda_run(exact, t->args, (void *)(uintptr_t)t->prepared, (void *)(uintptr_t)t->work,
                          t->m.stream),
                 "coda_run");
    }
    must(t->m.capture_end(t->m.stream, &g) || t->m.replay_new(&r, g, 0) || t->m.graph_free(g), "capture");
    return r;
}

static double milliseconds(const struct test *t, replay r, const event e[2])
{
    float ms = 0;
    must(t->m.event_record(e[0], t->m.stream) || t->m.replay_run(r, t->m.stream) ||
             t->m.event_record(e[1], t->m.stream) || t->m.stream_wait(t->m.stream) ||
             t->m.event_ms(&ms, e[0], e[1]),
         "replay");
    return ms / RUNS;
}

static double distance(const uint16_t *a, const uint16_t *b, int64_t n)
{
    double off = 0, all = 0;
    for (int64_t i = 0; i < n; i++) {
        float x, y;
        uint32_t bits[2] = {(uint32_t)a[i] << 16, (uint32_t)b[i] << 16};
        memcpy(&x, &bits[0], 4), memcpy(&y, &bits[1], 4);
        off += (x - y) * (x - y), all += (double)y * y;
    }
    return sqrt(off / all);
}

static double differ(const struct test *t, const replay side[2], int64_t n, const event e[2])
{
    static uint16_t y[2][CHECKED];
    address last = t->at[ARGS - 1] + (address)((size_t)n * HIDDEN * 2 - sizeof y[0]);
    for (int i = 0; i < 2; i++) {
        milliseconds(t, side[i], e);
        must(t->m.download(y[i], last, sizeof y[i]), "download");
    }
    return distance(y[0], y[1], CHECKED);
}

/* The shape runs, and so is asked for, before its best kernels are waited for. */
static bool is_ready(const struct test *t, int64_t n)
{
    for (int i = 0; i < 100 && coda_plan_ready(t->plan, &n) != 1; i++) {
        shaped(t, n);
        must(t->m.stream_wait(t->m.stream), "run");
        settle(t, 20);
    }
    return coda_plan_ready(t->plan, &n) == 1;
}

static int beside_exact(const struct test *t, int64_t n)
{
    coda_graph *bound;
    coda_plan *exact;
    coda_compile_options opt = CODA_COMPILE_OPTIONS_INIT;
    event e[2];
    double ratio[ROUNDS], mine = 0;
    good(coda_graph_bind(&bound, t->g, &n, 1), "coda_graph_bind");
    good(coda_compile(&exact, bound, &opt), "coda_compile");
    must(t->m.event_new(&e[0], 0) || t->m.event_new(&e[1], 0), "event");
    prepare(t, exact);
    bool ready = is_ready(t, n);
    replay side[2] = {captured(t, NULL, n), captured(t, exact, n)};
    double error = differ(t, side, n, e);
    for (int i = 0; i < ROUNDS; i++) {
        mine = milliseconds(t, side[0], e);
        ratio[i] = milliseconds(t, side[1], e) / mine;
    }
    qsort(ratio, ROUNDS, sizeof *ratio, rising);
    bool right = error <= AGREE;
    printf("rows/%-5lld %8.4f ms, an exact plan's time over it %.3f; they differ by %.1e%s%s\n", (long long)n,
           mine, ratio[ROUNDS / 2], error, right ? "" : ": WRONG", ready ? "" : "; its best is not ready");
    fprintf(t->out, ",\n{\"case\": \"shapes/rows/%lld\", \"ms\": %.5f, \"ratio\": %.4f, \"error\": %.3g}",
            (long long)n, mine, ratio[ROUNDS / 2], error);
    must(t->m.replay_free(side[0]) || t->m.replay_free(side[1]), "replay");
    coda_plan_free(exact);
    coda_graph_free(bound);
    return !right;
}

/* ---- The program ---- */

static void empty_cache(char *folder)
{
    must(!mkdtemp(folder), "mkdtemp");
    setenv("CODA_CACHE_DIR", folder, 1);
    unsetenv("CODA_BUNDLES");
}

static void compile(struct test *t)
{
    coda_compile_options opt = CODA_COMPILE_OPTIONS_INIT;
    opt.policy = CODA_POLICY_BACKGROUND;
    good(coda_graph_parse(&t->g, text), "coda_graph_parse");
    double start = clock_us();
    good(coda_compile(&t->plan, t->g, &opt), "coda_compile");
    double compiled = clock_us();
    open_memory(t);
    prepare(t, t->plan);
    must(t->m.stream_wait(t->m.stream), "prepare");
    double ran = clock_us();
    shaped(t, 17);
    must(t->m.stream_wait(t->m.stream), "run");
    double ms = (compiled - start + clock_us() - ran) * 1e-3;
    printf("first answer after %.1f ms\n", ms);
    fprintf(t->out,
            "{\"name\": \"shapes\", \"device\": \"%s\", \"cases\": [\n{\"case\": \"shapes/first\", "
            "\"ms\": %.1f}",
            t->m.name, ms);
}

int main(int argc, char **argv)
{
    struct test t = {0};
    const char *out = "perf/results/shapes.json";
    int count = 10000, bad = 0;
    for (int i = 1; i < argc; i++) {
        if (!strcmp(argv[i], "--quick")) count = 2000;
        else if (!strcmp(argv[i], "--out") && i + 1 < argc) out = argv[++i];
        else return fprintf(stderr, "usage: shapes [--quick] [--out FILE]\n"), 2;
    }
    char folder[] = "/tmp/coda-shapes-XXXXXX";
    empty_cache(folder);
    machine_open(&t.m);
    must(!(t.out = fopen(out, "w")), out);
    compile(&t);
    calls(&t, "unsettled", count, 1);
    settle(&t, 60);
    calls(&t, "settled", count, 1);
    calls(&t, "again", count, 1);
    settle(&t, 60);
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) bad += beside_exact(&t, rows[i]);
    good(coda_plan_seal(t.plan), "coda_plan_seal");
    calls(&t, "sealed", 10 * count, 2);
    fprintf(t.out, "\n]}\n");
    must(fclose(t.out), out);
    coda_plan_free(t.plan);
    coda_graph_free(t.g);
    return bad > 0;
}
