/*
 * shapes.c -- one plan of a LLaMA-7B block for every number of tokens, by the policy that waits for nothing,
 * on an empty cache: what a server's steps cost the host while better kernels are made, and after.
 *
 *     shapes [--quick] [--calls N] [--sealed N] [--samples N] [--out FILE]
 *
 *     first      coda_compile and the first run, to its end: milliseconds
 *     warm       the same in a new process, with the cache full
 *     bundle     ... with an empty cache, a bundle, and no NVRTC
 *     unsettled  host time of coda_run_shaped of N random numbers of tokens, right after it: microseconds
 *     settled    the same once the background is done; and of the same numbers once more
 *     samples    last rows of some of the unsettled runs, beside those of plans for that many tokens alone
 *     rows/T     a run's time over that of a plan for T tokens alone, runs in turns
 *     stream     the same of all these together
 *     all        coda_warm of all kernels that any number of tokens wants
 *     sealed     other numbers after coda_plan_seal: what is compiled and loaded, and how memory grows
 *
 * Kernels of the sides compared come out of one cache. Results of both are compared: they may differ by
 * rounding, since tiles of the exact plan are its own. No phase of runs takes longer than a minute.
 */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "report.h"
#include "block.h"
#include "usage.h"

enum { DRAINED = 16, ROUNDS = 11, MOST_SAMPLES = 256 };
#define AGREE 0.02
#define ENORMOUS 1e9 /* the error of what is not a number */
#define PHASE_US 60e6

static const int64_t rows[] = {1, 2, 7, 16, 40, 64, 100, 128, 300, 777, 1024, 1500, 2048, 3000, 4096};

struct sample {
    int64_t tokens;
    uint16_t row[BLOCK_HIDDEN];
};

struct test {
    struct block b;
    FILE *out;
    struct sample *sample;
    int samples, taken;
    double mine, theirs; /* milliseconds of all rows */
};

/* As many small numbers of tokens as large ones. */
static int64_t draw(uint64_t *state)
{
    double u = (double)(random_bits(state) >> 11) * 0x1p-53;
    int64_t n = (int64_t)exp2(u * 12.0);
    return n < 1 ? 1 : n > BLOCK_TOKENS ? BLOCK_TOKENS : n;
}

static int rising(const void *a, const void *b)
{
    double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

static coda_shape_stats stats_of(const struct test *t)
{
    coda_shape_stats s = CODA_SHAPE_STATS_INIT;
    good(coda_shape_stats_get(t->b.plan, &s), "coda_shape_stats_get");
    return s;
}

static long long compiles_of(const struct test *t)
{
    coda_cache_stats s = CODA_CACHE_STATS_INIT;
    good(coda_cache_stats_get(t->b.cache, &s), "coda_cache_stats_get");
    return (long long)s.compiles;
}

/* ---- Streams of runs ---- */

static void take_sample(struct test *t, int64_t n)
{
    struct sample *s = &t->sample[t->taken++];
    block_wait(&t->b);
    s->tokens = n;
    block_last(&t->b, n, s->row);
}

/* Of `count` runs, or those of a minute; the stream is waited for now and then, so that no run waits for room
 * in it. Every so many leaves a sample, if they are wanted. */
static void calls(struct test *t, const char *name, int count, uint64_t seed, bool sampled)
{
    double *us = malloc(sizeof *us * (size_t)count), began = clock_us();
    must(!us, "malloc");
    int slow = 0, n = 0;
    for (; n < count && clock_us() - began < PHASE_US; n++) {
        int64_t tokens = draw(&seed);
        us[n] = block_run(&t->b, tokens);
        slow += us[n] > 5000;
        if (sampled && t->taken < t->samples && n % (count / t->samples) == 0) take_sample(t, tokens);
        if (n % DRAINED == 0) block_wait(&t->b);
    }
    block_wait(&t->b);
    qsort(us, (size_t)n, sizeof *us, rising);
    coda_shape_stats s = stats_of(t);
    double middle = us[n / 2], late = us[n - 1 - n / 1000], last = us[n - 1];
    printf("%-10s %6d runs: host %8.1f us, %8.1f of a thousand, %9.1f at most, %d above 5 ms; %lld planned, "
           "%lld improved, %lld pending, %lld kernels\n",
           name, n, middle, late, last, slow, (long long)s.planned, (long long)s.improved,
           (long long)s.pending, (long long)s.kernels);
    fprintf(t->out,
            ",\n{\"case\": \"shapes/%s\", \"runs\": %d, \"host_us\": {\"median\": %.2f, \"p999\": %.1f, "
            "\"max\": %.1f}, \"above_5_ms\": %d, \"planned\": %lld, \"improved\": %lld, \"kernels\": %lld}",
            name, n, middle, late, last, slow, (long long)s.planned, (long long)s.improved,
            (long long)s.kernels);
    fflush(NULL);
    free(us);
}

static void settle(const struct test *t, double seconds)
{
    for (double end = clock_us() + seconds * 1e6; clock_us() < end; usleep(20000))
        if (!stats_of(t).pending) return;
    printf("not settled: %lld pending\n", (long long)stats_of(t).pending);
}

/* ---- Beside exact plans ---- */

/* Runs that were answered while kernels were made; 1: one was wrong. */
static int check_samples(struct test *t)
{
    double worst = 0;
    uint16_t row[BLOCK_HIDDEN];
    for (int i = 0; i < t->taken; i++) {
        const struct sample *s = &t->sample[i];
        coda_plan *exact = block_exact(&t->b, s->tokens);
        block_run_exact(&t->b, exact);
        block_wait(&t->b);
        block_last(&t->b, s->tokens, row);
        double d = block_distance(s->row, row);
        worst = fmax(worst, isnan(d) ? ENORMOUS : d);
        coda_plan_free(exact);
    }
    bool right = worst <= AGREE;
    printf("samples    %6d of the unsettled runs differ from exact plans by %.1e at most%s\n", t->taken,
           worst, right ? "" : ": WRONG");
    fprintf(t->out, ",\n{\"case\": \"shapes/samples\", \"runs\": %d, \"error\": %.3g}", t->taken, worst);
    return !right;
}

/* The shape runs, and so is asked for, before its best kernels are waited for. */
static bool is_ready(const struct test *t, int64_t n)
{
    for (int i = 0; i < 100 && coda_plan_ready(t->b.plan, &n) != 1; i++) {
        block_run(&t->b, n);
        block_wait(&t->b);
        settle(t, 20);
    }
    return coda_plan_ready(t->b.plan, &n) == 1;
}

static double differ(const struct test *t, const replay side[2], int64_t n, const event e[2])
{
    uint16_t y[2][BLOCK_HIDDEN];
    for (int i = 0; i < 2; i++) {
        block_replay(&t->b, side[i], e);
        block_last(&t->b, n, y[i]);
    }
    double d = block_distance(y[0], y[1]);
    return isnan(d) ? ENORMOUS : d;
}

static int beside_exact(struct test *t, int64_t n)
{
    event e[2];
    double ratio[ROUNDS], mine[ROUNDS];
    coda_plan *exact = block_exact(&t->b, n);
    must(t->b.m.event_new(&e[0], 0) || t->b.m.event_new(&e[1], 0), "event");
    bool ready = is_ready(t, n);
    replay side[2] = {block_capture(&t->b, NULL, n), block_capture(&t->b, exact, n)};
    double error = differ(t, side, n, e);
    for (int i = 0; i < ROUNDS; i++) {
        mine[i] = block_replay(&t->b, side[0], e);
        ratio[i] = block_replay(&t->b, side[1], e) / mine[i];
    }
    qsort(ratio, ROUNDS, sizeof *ratio, rising);
    qsort(mine, ROUNDS, sizeof *mine, rising);
    double ms = mine[ROUNDS / 2], middle = ratio[ROUNDS / 2];
    t->mine += ms, t->theirs += ms * middle;
    bool right = error <= AGREE;
    printf("rows/%-5lld %8.4f ms, an exact plan's time over it %.3f; they differ by %.1e%s%s\n", (long long)n,
           ms, middle, error, right ? "" : ": WRONG", ready ? "" : "; its best is not ready");
    fprintf(t->out, ",\n{\"case\": \"shapes/rows/%lld\", \"ms\": %.5f, \"ratio\": %.4f, \"error\": %.3g}",
            (long long)n, ms, middle, error);
    must(t->b.m.replay_free(side[0]) || t->b.m.replay_free(side[1]), "replay");
    coda_plan_free(exact);
    return !right;
}

/* ---- Memory ---- */

struct held {
    double resident, device; /* MB */
};

static struct held held_now(const struct test *t)
{
    struct held h = {0};
    size_t left = 0, all = 0;
    long pages = 0;
    FILE *f = fopen("/proc/self/statm", "r");
    if (f && fscanf(f, "%*d %ld", &pages) != 1) pages = 0;
    if (f) fclose(f);
    must(t->b.m.memory(&left, &all), "cuMemGetInfo");
    h.resident = (double)pages * (double)sysconf(_SC_PAGESIZE) * 1e-6;
    h.device = (double)(all - left) * 1e-6;
    return h;
}

/* A tenth fills what is kept of shapes; from then on nothing should grow. */
static void run_sealed(struct test *t, int count)
{
    long long compiles = compiles_of(t);
    coda_shape_stats s = stats_of(t);
    struct held at[3] = {held_now(t)};
    calls(t, "sealed/begin", count / 10 + 1, 2, false);
    at[1] = held_now(t);
    calls(t, "sealed", count, 3, false);
    at[2] = held_now(t);
    long long made = compiles_of(t) - compiles, loaded = (long long)(stats_of(t).kernels - s.kernels);
    printf(
        "sealed     %lld compiled, %lld loaded; resident %.1f MB, then %.1f, then %.1f; on the device %.1f "
        "MB, %.1f, %.1f\n",
        made, loaded, at[0].resident, at[1].resident, at[2].resident, at[0].device, at[1].device,
        at[2].device);
    fprintf(
        t->out,
        ",\n{\"case\": \"shapes/memory\", \"compiles\": %lld, \"loads\": %lld, \"resident_mb\": [%.2f, %.2f, "
        "%.2f], \"device_mb\": [%.2f, %.2f, %.2f], \"resident_growth_mb\": %.2f, \"device_growth_mb\": %.2f}",
        made, loaded, at[0].resident, at[1].resident, at[2].resident, at[0].device, at[1].device,
        at[2].device, at[2].resident - at[1].resident, at[2].device - at[1].device);
}

static void warm(struct test *t)
{
    coda_warm_options opt = CODA_WARM_OPTIONS_INIT;
    long long compiles = compiles_of(t);
    opt.bindings = CODA_WARM_ALL;
    double start = clock_us();
    good(coda_warm(t->b.plan, &opt), "coda_warm");
    double ms = (clock_us() - start) * 1e-3;
    printf("all        %.1f ms, %lld compiled\n", ms, compiles_of(t) - compiles);
    fprintf(t->out, ",\n{\"case\": \"shapes/all\", \"ms\": %.1f, \"compiles\": %lld}", ms,
            compiles_of(t) - compiles);
}

/* ---- The first answer ---- */

static coda_cache *opened(const char *folder, const char *bundle)
{
    coda_cache_options where = CODA_CACHE_OPTIONS_INIT;
    coda_cache *c;
    where.dir = folder;
    where.overlays = bundle;
    good(coda_cache_open(&c, &where), "coda_cache_open");
    return c;
}

/* Milliseconds of coda_compile and of the first run, without the memory between them. */
static double first_answer(struct block *b, bool random)
{
    double start = clock_us();
    block_compile(b);
    double compiled = clock_us();
    block_memory(b, random);
    double ran = clock_us();
    block_run(b, 17);
    block_wait(b);
    return (compiled - start + clock_us() - ran) * 1e-3;
}

/* The new process: opening the cache counts, CUDA's context does not. */
static int be_first(const char *folder, const char *bundle)
{
    struct block b = {.cache = NULL};
    coda_cache_stats s = CODA_CACHE_STATS_INIT;
    machine_open(&b.m);
    double start = clock_us();
    b.cache = opened(folder, bundle);
    double ms = (clock_us() - start) * 1e-3 + first_answer(&b, false);
    good(coda_cache_stats_get(b.cache, &s), "coda_cache_stats_get");
    printf("%.3f %lld\n", ms, (long long)s.compiles);
    fflush(stdout);
    _exit(0);
}

static int say_first(const struct test *t, const char *name, const char *folder, const char *bundle,
                     const char *nvrtc)
{
    char command[1024], self[256] = "";
    double ms = 0;
    long long compiles = -1;
    must(readlink("/proc/self/exe", self, sizeof self - 1) < 0, "/proc/self/exe");
    snprintf(command, sizeof command, "%s%s timeout 60 %s --first %s '%s'", nvrtc ? "CODA_CUDA_LIB=" : "",
             nvrtc ? nvrtc : "", self, folder, bundle);
    FILE *f = popen(command, "r");
    bool told = f && fscanf(f, "%lf %lld", &ms, &compiles) == 2;
    bool ended = f && !pclose(f);
    if (!told || !ended) return fprintf(stderr, "perf: %s: no figures\n", command), 1;
    printf("%-12s first answer after %.1f ms, %lld compiled\n", name, ms, compiles);
    fprintf(t->out, ",\n{\"case\": \"shapes/%s\", \"ms\": %.1f, \"compiles\": %lld}", name, ms, compiles);
    return 0;
}

static int other_firsts(const struct test *t, const char *folder)
{
    char bundle[64], empty[64];
    coda_export_options opt = CODA_EXPORT_OPTIONS_INIT;
    const coda_plan *plan = t->b.plan;
    snprintf(bundle, sizeof bundle, "%s.bundle", folder);
    snprintf(empty, sizeof empty, "%s.empty", folder);
    opt.plans = &plan;
    opt.plan_count = 1;
    good(coda_cache_export(t->b.cache, bundle, &opt, NULL), "coda_cache_export");
    return say_first(t, "warm", folder, "", NULL) + say_first(t, "bundle", empty, bundle, empty);
}

/* ---- The program ---- */

struct settings {
    const char *out;
    int calls, sealed, samples;
};

static bool parse(struct settings *s, char **argv)
{
    for (; *argv; argv++) {
        int *number = !strcmp(*argv, "--calls")     ? &s->calls
                      : !strcmp(*argv, "--sealed")  ? &s->sealed
                      : !strcmp(*argv, "--samples") ? &s->samples
                                                    : NULL;
        if (!strcmp(*argv, "--quick")) s->calls = 2000, s->sealed = 20000, s->samples = 8;
        else if (number && argv[1]) *number = atoi(*++argv);
        else if (!strcmp(*argv, "--out") && argv[1]) s->out = *++argv;
        else return false;
    }
    return s->calls > 0 && s->sealed > 0 && s->samples > 0 && s->samples <= MOST_SAMPLES &&
           s->samples <= s->calls;
}

static int measure(struct test *t, const struct settings *s, const char *folder)
{
    int bad = 0;
    double ms = first_answer(&t->b, true);
    printf("first answer after %.1f ms\n", ms);
    fprintf(
        t->out,
        "{\"name\": \"shapes\", \"device\": \"%s\", \"cases\": [\n{\"case\": \"shapes/first\", \"ms\": %.1f}",
        t->b.m.name, ms);
    calls(t, "unsettled", s->calls, 1, true);
    settle(t, 60);
    calls(t, "settled", s->calls, 1, false);
    calls(t, "again", s->calls, 1, false);
    settle(t, 60);
    bad += check_samples(t);
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) bad += beside_exact(t, rows[i]);
    printf("stream     an exact plan's time over that of all these %.3f\n", t->theirs / t->mine);
    fprintf(t->out, ",\n{\"case\": \"shapes/stream\", \"ratio\": %.4f}", t->theirs / t->mine);
    warm(t);
    bad += other_firsts(t, folder);
    good(coda_plan_seal(t->b.plan), "coda_plan_seal");
    run_sealed(t, s->sealed);
    fprintf(t->out, "\n]}\n");
    return bad;
}

int main(int argc, char **argv)
{
    struct test t = {.taken = 0};
    struct settings s = {NULL, 10000, 100000, 64};
    char folder[] = "/tmp/coda-shapes-XXXXXX", command[128], file[256];
    if (argc == 4 && !strcmp(argv[1], "--first")) return be_first(argv[2], argv[3]);
    static const char usage[] =
        "usage: shapes [--quick] [--calls N] [--sealed N] [--samples N] [--out FILE]\n"
        "One plan of a LLaMA-7B block for every number of tokens, on an empty cache; needs a GPU.";
    if (usage_asked(argv, usage)) return 0;
    if (!parse(&s, argv + 1)) return fprintf(stderr, "%.*s\n", (int)strcspn(usage, "\n"), usage), 2;
    must(!mkdtemp(folder), "mkdtemp");
    machine_open(&t.b.m);
    if (!s.out) report_path(file, sizeof file, "shapes"), s.out = file;
    must(!(t.out = fopen(s.out, "w")), s.out);
    t.samples = s.samples;
    must(!(t.sample = malloc(sizeof *t.sample * (size_t)t.samples)), "malloc");
    t.b.cache = opened(folder, "");
    int bad = measure(&t, &s, folder);
    must(fclose(t.out), s.out);
    coda_plan_free(t.b.plan);
    coda_graph_free(t.b.g);
    coda_cache_free(t.b.cache);
    free(t.sample);
    snprintf(command, sizeof command, "rm -rf %s %s.empty %s.bundle", folder, folder, folder);
    if (system(command)) fprintf(stderr, "perf: %s is left behind\n", folder);
    return bad > 0;
}
