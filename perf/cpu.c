/*
 * cpu.c -- the CPU device: products, maps, norms, attention; milliseconds by the clock and of processor time.
 *
 *     cpu [--threads N] [--out FILE] [PATTERN...]
 *
 *     product/M x N x K DTYPE   row/NAME 512 x 1024   attention/NAME
 *
 * Each figure is the least of its rounds, since other programs of the machine only ever add to it: the
 * clock's, and the processor time of all threads (getrusage). perf/cpu_peers.py does the same with NumPy and
 * PyTorch.
 */
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>

#include "bench.h"
#include "options.h"
#include "usage.h"

enum { LEAST_ROUNDS = 5, MOST_ROUNDS = 400 };
static const double ROUNDS_MS = 400;

struct cpu_case {
    const char *name, *graph;
};

static const struct cpu_case cases[] = {
    {"product/1x4096x4096 f32", "%x = input f32[1,4096]\n%w = weight f32[4096,4096]\n%y = matmul %x, %w\n"},
    {"product/16x4096x4096 f32", "%x = input f32[16,4096]\n%w = weight f32[4096,4096]\n%y = matmul %x, %w\n"},
    {"product/128x4096x4096 f32",
     "%x = input f32[128,4096]\n%w = weight f32[4096,4096]\n%y = matmul %x, %w\n"},
    {"product/512x1024x1024 f32",
     "%x = input f32[512,1024]\n%w = weight f32[1024,1024]\n%y = matmul %x, %w\n"},
    {"product/1x4096x4096 bf16",
     "%x = input bf16[1,4096]\n%w = weight bf16[4096,4096]\n%y = matmul %x, %w\n"},
    {"product/16x4096x4096 bf16",
     "%x = input bf16[16,4096]\n%w = weight bf16[4096,4096]\n%y = matmul %x, %w\n"},
    {"row/add", "%x = input f32[512,1024]\n%b = input f32[512,1024]\n%y = add %x, %b\n"},
    {"row/gelu_erf", "%x = input f32[512,1024]\n%y = gelu_erf %x\n"},
    {"row/layer_norm", "%x = input f32[512,1024]\n%g = weight f32[1024]\n%b = weight f32[1024]\n"
                       "%y = layer_norm %x, %g, %b {eps=1e-05}\n"},
    {"row/softmax", "%x = input f32[512,1024]\n%y = softmax %x\n"},
    {"attention/512 causal", "%q = input f32[512,512]\n%k = input f32[512,512]\n%v = input f32[512,512]\n"
                             "%y = attention %q, %k, %v {heads=8, causal=1}\n"},
    {"attention/1 of 4096", "%q = input f32[1,512]\n%k = input f32[4096,512]\n%v = input f32[4096,512]\n"
                            "%y = attention %q, %k, %v {heads=8}\n"},
};

static void die(const char *what)
{
    fprintf(stderr, "perf: %s: %s\n", what, coda_error());
    exit(1);
}

static double processor_ms(void)
{
    struct rusage u;
    getrusage(RUSAGE_SELF, &u);
    return 1e3 * (double)(u.ru_utime.tv_sec + u.ru_stime.tv_sec) +
           1e-3 * (double)(u.ru_utime.tv_usec + u.ru_stime.tv_usec);
}

/* Numbers in -1 .. 1. */
static void *numbers(const coda_arg_info *a)
{
    void *to = aligned_alloc(256, (a->bytes + 255) / 256 * 256);
    uint64_t x = 1;
    bool narrow = a->dtype == CODA_BF16;
    for (size_t i = 0; to && i < a->bytes / (narrow ? 2 : 4); i++) {
        x = x * 6364136223846793005u + 1442695040888963407u;
        float f = (float)((double)(int64_t)(x >> 11) * 0x1p-52 - 1);
        uint32_t bits;
        memcpy(&bits, &f, sizeof bits);
        if (narrow) ((uint16_t *)to)[i] = (uint16_t)(bits >> 16);
        else ((float *)to)[i] = f;
    }
    return to;
}

/* Processor time has a clock of its own microseconds: it is taken over as many runs as take 4 ms. */
static void measure(const coda_plan *p, void **args, void *work, int threads, double *wall, double *processor)
{
    coda_run_options run = CODA_RUN_OPTIONS_INIT;
    run.threads = threads;
    double begun = clock_us(), once = 0;
    *wall = *processor = 1e30;
    for (int round = 0, runs = 1; round < MOST_ROUNDS; round++) {
        double from = clock_us(), used = processor_ms();
        for (int i = 0; i < runs; i++)
            if (coda_run_shaped(p, args, NULL, work, NULL, &run) != CODA_OK) die("run");
        once = (clock_us() - from) * 1e-3 / runs;
        used = (processor_ms() - used) / runs;
        if (round > 0 && once < *wall) *wall = once;
        if (round > 0 && used < *processor) *processor = used;
        if (round == 0 && once < 4) runs = (int)(4 / once) + 1;
        if (round >= LEAST_ROUNDS && clock_us() - begun > ROUNDS_MS * 1e3) break;
    }
}

static void run_case(struct report *r, const struct cpu_case *c, int threads)
{
    char text[512];
    coda_graph *g;
    coda_plan *p;
    coda_compile_options opt = CODA_COMPILE_OPTIONS_INIT;
    void *args[8];
    double wall, processor;
    opt.device = CODA_DEVICE_CPU;
    snprintf(text, sizeof text, "%soutput %%y = %%y\n", c->graph);
    if (coda_graph_parse(&g, text) != CODA_OK || coda_compile(&p, g, &opt) != CODA_OK) die(c->name);
    for (int i = 0; i < coda_plan_args(p); i++) {
        coda_arg_info a = CODA_ARG_INFO_INIT;
        coda_plan_arg(p, i, &a);
        args[i] = numbers(&a);
    }
    void *work = aligned_alloc(256, (coda_plan_workspace(p) + 256) / 256 * 256);
    measure(p, args, work, threads, &wall, &processor);
    report_case(r, c->name);
    fprintf(r->json, ", \"wall_ms\": %.6g, \"cpu_ms\": %.6g", wall, processor);
    report_end_case(r);
    printf("%-28s %9.3f ms wall %9.3f ms CPU\n", c->name, wall, processor);
    fflush(stdout);
    for (int i = 0; i < coda_plan_args(p); i++) free(args[i]);
    free(work);
    coda_plan_free(p);
    coda_graph_free(g);
}

static bool wanted(char **pattern, int n, const char *name)
{
    bool found = n == 0;
    for (int i = 0; i < n; i++) found = found || strstr(name, pattern[i]);
    return found;
}

int main(int argc, char **argv)
{
    struct report r = {0};
    const char *out = "/dev/null";
    int64_t threads = 0;
    bool quick; /* `make perf` tells all programs; this one always is */
    const struct option option[] = {
        {"--threads", .number = &threads}, {"--out", .word = &out}, {"--quick", .given = &quick}};
    char **pattern = argv + (argc > 0);
    if (usage_asked(argv, "usage: cpu [--quick] [--threads N] [--out FILE] [PATTERN]...\n"
                          "Measures the CPU device: figures whose names have a PATTERN, or all."))
        return 0;
    int patterns = options_read("cpu", pattern, option, sizeof option / sizeof *option);
    if (patterns < 0) return 2;
    report_begin(&r, "cpu", out);
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++)
        if (wanted(pattern, patterns, cases[i].name)) run_case(&r, &cases[i], (int)threads);
    return report_end(&r);
}
