/*
 * ranks.c -- a model over several GPUs of a host, a thread each: what exchanges cost in a captured graph, by
 * NCCL and by the library's own kernels.
 *
 *     exchange/BYTES    a sum of so many bytes of bf16 on every rank, one of a chain, us
 *     residual/BYTES    the same with the residual and the RMSNorm behind it
 *     split/SHAPE/M     the dense part of a decoder layer of M tokens, cut over the ranks, us: beside the
 *                       same parts without exchanges (`share` of it is left), and the whole on one GPU
 *                       (`gain`)
 *     pieces/SHAPE/M    the same layer, its rows in two pieces, an exchange beside the products of the other
 *                       piece (CODA_OVERLAP), us: `behind` has them one behind the other
 *     step/SHAPE/M      forward and backward of a layer of M tokens a rank, whose gradients are added up
 *                       beside the rest of the backward, us: `behind` without CODA_OVERLAP, `apart` without
 *                       exchanges (`share` of it is left); in memory that stays (CODA_STEADY)
 *     step_bf16/...     the same, whose gradients are rounded to bf16 before they are exchanged
 *
 * `own` is the figure with $CODA_EXCHANGE=own (--own WORD: another one), `times` how many of them the other
 * takes. --only exchange, residual, split, pieces, step or step_bf16 takes those alone.
 *
 * Each figure is the slower rank's, of graphs that all begin together and hold some layers. --ranks N takes
 * so many GPUs, two without it; --small has shapes for the emulator (CODA_EMULATOR_DEVICES=2,
 * LD_LIBRARY_PATH=$PWD/build/emulator, CODA_CUDA_LIB and CODA_LIBCUDA). NVLink multicast stays off.
 */
#include <pthread.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "bench.h"
#include "gpu.h"
#include "options.h"
#include "ranks_graphs.h"
#include "usage.h"

enum { MOST_RANKS = 8, MOST_ARGUMENTS = 256, TRIES = 21, CAPTURE_THREAD_LOCAL = 1, STREAM_NON_BLOCKING = 1 };

struct rank {
    const struct work *work;
    int number, replays;
    coda_group *group;
    pthread_barrier_t *all;
    double us[TRIES]; /* of a step */
};

/* At once: other threads use what an orderly end takes away. */
static void die(const char *what)
{
    fprintf(stderr, "perf: %s: %s\n", what, coda_error());
    fflush(stdout);
    _exit(1);
}

/* ---- A rank ---- */

enum { PIECE = 1 << 20 };
static uint16_t piece[PIECE]; /* bf16 between 2^-8 and 2^-6 of both signs, which all tensors repeat */

static void draw_piece(void)
{
    uint32_t r = 1;
    for (int i = 0; i < PIECE; i++) {
        r = r * 1664525 + 1013904223;
        piece[i] = (uint16_t)((r >> 16 & 0x80ff) | 0x3b80);
    }
}

static void *filled(const struct gpu *gpu, size_t bytes)
{
    gpu_address at = gpu_alloc(gpu, bytes);
    if (!at) die("there is not enough memory");
    for (size_t i = 0; i < bytes; i += sizeof piece)
        must(gpu->upload(at + i, piece, bytes - i < sizeof piece ? bytes - i : sizeof piece), "cuMemcpyHtoD");
    return (void *)at;
}

static void allocate(const struct rank *r, const struct gpu *gpu, const coda_plan *p, void **args)
{
    if (coda_plan_args(p) > MOST_ARGUMENTS) die("too many arguments");
    for (int i = 0; i < coda_plan_args(p); i++) {
        coda_arg_info a = CODA_ARG_INFO_INIT;
        coda_plan_arg(p, i, &a);
        args[i] = a.kind == CODA_ARG_GROUP ? (void *)r->group : filled(gpu, a.bytes);
    }
}

/* One run, captured: what the first runs make is there. */
static gpu_replay captured(const struct gpu *gpu, const coda_plan *p, void **args, void *work,
                           coda_stream stream)
{
    gpu_graph recorded;
    gpu_replay made;
    for (int i = 0; i < 2; i++)
        if (coda_run(p, args, NULL, work, stream)) die("run");
    must(gpu->stream_wait(stream), "a run");
    must(gpu->capture_begin(stream, CAPTURE_THREAD_LOCAL), "cuStreamBeginCapture");
    if (coda_run(p, args, NULL, work, stream)) die("a captured run");
    must(gpu->capture_end(stream, &recorded), "cuStreamEndCapture");
    must(gpu->replay_new(&made, recorded, 0), "cuGraphInstantiate");
    must(gpu->graph_free(recorded), "cuGraphDestroy");
    return made;
}

static void *measure(void *context)
{
    struct rank *r = context;
    struct gpu gpu;
    coda_stream stream;
    gpu_event from, to;
    void *args[MOST_ARGUMENTS];
    if (gpu_open_at(&gpu, r->number)) die("there is no such GPU");
    coda_plan *p = work_compile(r->work);
    if (!p) die("compile");
    allocate(r, &gpu, p, args);
    void *work = filled(&gpu, coda_plan_workspace(p) + 256);
    must(gpu.stream_new(&stream, STREAM_NON_BLOCKING), "cuStreamCreate");
    must(gpu.event_new(&from, 0), "cuEventCreate"), must(gpu.event_new(&to, 0), "cuEventCreate");
    gpu_replay steps = captured(&gpu, p, args, work, stream);
    for (int t = 0; t < TRIES; t++) {
        float ms;
        pthread_barrier_wait(r->all);
        must(gpu.replay_run(steps, stream), "cuGraphLaunch"); /* the ranks meet in it, ... */
        must(gpu.event_record(from, stream), "cuEventRecord");
        for (int i = 0; i < r->replays; i++) must(gpu.replay_run(steps, stream), "cuGraphLaunch");
        must(gpu.event_record(to, stream), "cuEventRecord");
        must(gpu.event_wait(to), "a replay");
        if (coda_group_status(r->group)) die("a replay");
        must(gpu.event_ms(&ms, from, to), "cuEventElapsedTime"); /* ... and so begin at once */
        r->us[t] = 1e3 * (double)ms / r->replays / r->work->steps;
    }
    gpu.replay_free(steps), gpu.event_free(from), gpu.event_free(to), gpu.stream_free(stream);
    for (int i = 0; i < coda_plan_args(p); i++)
        if (args[i] != (void *)r->group) gpu.free((gpu_address)args[i]);
    gpu.free((gpu_address)work);
    coda_plan_free(p);
    return NULL;
}

/* Microseconds of a step, of the slower rank in each round, in rising order. */
static double measured(const struct work *w, coda_group *const *group, int replays, double *us)
{
    struct rank r[MOST_RANKS];
    pthread_t thread[MOST_RANKS];
    pthread_barrier_t all;
    int threads = w->exchanges ? w->ranks : 1;
    pthread_barrier_init(&all, NULL, (unsigned)threads);
    for (int i = 0; i < threads; i++) {
        r[i] = (struct rank){.work = w, .number = i, .replays = replays, .group = group[i], .all = &all};
        must(pthread_create(&thread[i], NULL, measure, &r[i]), "pthread_create");
    }
    for (int i = 0; i < threads; i++) pthread_join(thread[i], NULL);
    for (int t = 0; t < TRIES; t++) {
        us[t] = 0;
        for (int i = 0; i < threads; i++) us[t] = r[i].us[t] > us[t] ? r[i].us[t] : us[t];
    }
    pthread_barrier_destroy(&all);
    return median(us, TRIES);
}

/* ---- Figures ---- */

struct figures {
    struct report report;
    coda_group *group[MOST_RANKS]; /* of all figures: NCCL's communicators take a second to make */
    int ranks, replays;
    bool small, quick;
    const char *own, *only; /* a value of $CODA_EXCHANGE; what is measured, NULL: all */
};

static void begin(struct figures *s, const char *name, double us, const double *all)
{
    report_case(&s->report, name);
    fprintf(s->report.json, ", \"ranks\": %d, \"us\": %.6g, \"min\": %.6g, \"max\": %.6g, \"rounds\": %d",
            s->ranks, us, all[0], all[TRIES - 1], TRIES);
    printf("%-24s %9.2f us   %.2f .. %.2f", name, us, all[0], all[TRIES - 1]);
}

/* The same by our kernels: microseconds. */
static double beside(struct figures *s, const struct work *w, double us)
{
    double all[TRIES];
    setenv("CODA_EXCHANGE", s->own, 1);
    double own = measured(w, s->group, s->replays, all);
    setenv("CODA_EXCHANGE", "nccl", 1);
    fprintf(s->report.json, ", \"own_us\": %.6g, \"own_min\": %.6g, \"own_max\": %.6g, \"times\": %.4f", own,
            all[0], all[TRIES - 1], us / own);
    printf(", %s %.2f us   %.2f .. %.2f (%.2f x)", s->own, own, all[0], all[TRIES - 1], us / own);
    return own;
}

static bool wanted(const struct figures *s, const char *what) { return !s->only || !strcmp(s->only, what); }

static void end(struct figures *s)
{
    report_end_case(&s->report);
    puts("");
    fflush(stdout);
}

/* Rows of D 4096, of larger ones 8192. */
static void sizes(struct figures *s)
{
    static const int64_t all[] = {8, 64, 128, 512, 1024, 2048, 4096, 16384, 32768},
                         some[] = {8, 128, 1024, 32768};
    const int64_t *kib = s->quick ? some : all;
    int count = s->small ? 1 : (int)(s->quick ? sizeof some : sizeof all) / (int)sizeof *all;
    for (int i = 0; i < 2 * count; i++) {
        int64_t bytes = kib[i % count] << 10, d = s->small ? 256 : kib[i % count] < 1024 ? 4096 : 8192;
        struct work w = {
            .build = build_exchanges, .m = bytes / 2 / d, .d = d, .ranks = s->ranks, .exchanges = true};
        char name[40];
        double us[TRIES];
        w.rows = i >= count;
        w.steps = s->small ? 2 : 20;
        if (!wanted(s, w.rows ? "residual" : "exchange")) continue;
        snprintf(name, sizeof name, "%s/%lldK", w.rows ? "residual" : "exchange", (long long)kib[i % count]);
        double nccl = measured(&w, s->group, s->replays, us);
        begin(s, name, nccl, us);
        beside(s, &w, nccl);
        end(s);
    }
}

static void layers(struct figures *s, const char *shape, int64_t d, int64_t f, int64_t m, int steps)
{
    struct work w = {
        .build = build_layers, .m = m, .d = d, .f = f, .ranks = s->ranks, .exchanges = true, .steps = steps};
    char name[48];
    double us[TRIES], other[TRIES];
    snprintf(name, sizeof name, "split/%s/%lld", shape, (long long)m);
    double cut = measured(&w, s->group, s->replays, us);
    begin(s, name, cut, us);
    double own = beside(s, &w, cut);
    w.exchanges = false;
    double apart = measured(&w, s->group, s->replays, other);
    w.ranks = 1;
    double whole = measured(&w, s->group, s->replays, other);
    fprintf(s->report.json, ", \"apart_us\": %.6g, \"whole_us\": %.6g, \"share\": %.4f, \"gain\": %.4f",
            apart, whole, apart / cut, whole / cut);
    fprintf(s->report.json, ", \"own_share\": %.4f, \"own_gain\": %.4f", apart / own, whole / own);
    printf(", without exchanges %.2f (%.3f), on one GPU %.2f (%.2f x)", apart, apart / cut, whole,
           whole / cut);
    end(s);
}

/* With exchanges beside others, behind them, and without. */
static void overlapped(struct figures *s, const char *name, struct work *w)
{
    double us[TRIES], other[TRIES];
    w->ranks = s->ranks, w->exchanges = w->overlaps = true;
    double over = measured(w, s->group, s->replays, us);
    begin(s, name, over, us);
    beside(s, w, over);
    w->overlaps = false;
    double behind = measured(w, s->group, s->replays, other);
    fprintf(s->report.json, ", \"behind_us\": %.6g, \"over_behind\": %.4f", behind, behind / over);
    printf(", one behind the other %.2f (%.3f)", behind, behind / over);
    w->exchanges = false;
    double apart = measured(w, s->group, s->replays, other);
    fprintf(s->report.json, ", \"apart_us\": %.6g, \"share\": %.4f", apart, apart / over);
    printf(", without exchanges %.2f (%.3f)", apart, apart / over);
    end(s);
}

static void all_overlapped(struct figures *s)
{
    int64_t m = s->small ? 16 : 2048, d = s->small ? 64 * s->ranks : 4096,
            f = s->small ? 96 * s->ranks : 11008;
    struct work pieces = {.build = build_pieces, .m = m, .d = d, .f = f, .steps = s->small ? 2 : 8},
                step = {.build = build_step, .m = 2 * m, .d = d, .f = f, .steps = s->small ? 1 : 4},
                rounded = step;
    char name[48];
    snprintf(name, sizeof name, "pieces/%s/%lld", s->small ? "small" : "7b", (long long)m);
    if (wanted(s, "pieces")) overlapped(s, name, &pieces);
    snprintf(name, sizeof name, "step/%s/%lld", s->small ? "small" : "7b", (long long)(2 * m));
    step.steady = true;
    if (wanted(s, "step")) overlapped(s, name, &step);
    snprintf(name, sizeof name, "step_bf16/%s/%lld", s->small ? "small" : "7b", (long long)(2 * m));
    rounded.rounds = rounded.steady = true;
    if (wanted(s, "step_bf16")) overlapped(s, name, &rounded);
}

static void all_layers(struct figures *s)
{
    static const int64_t tokens[] = {1, 2048, 64, 8};
    if (s->small) return layers(s, "small", 64 * s->ranks, 96 * s->ranks, 4, 2);
    for (int i = 0; i < (s->quick ? 2 : 4); i++) {
        layers(s, "7b", 4096, 11008, tokens[i], 8);
        if (!i || !s->quick) layers(s, "70b", 8192, 28672, tokens[i], 4);
    }
}

int main(int argc, char **argv)
{
    static const char *const about =
        "usage: ranks [--quick] [--ranks N] [--small] [--own WORD] [--only WHAT] [--out FILE]\n"
        "measures exchanges between N GPUs of this machine, 2 without it, and layers that are cut over them";
    int64_t ranks = 2;
    const char *out = NULL;
    struct figures s = {.replays = 10, .own = "own"};
    const struct option o[] = {{.name = "--ranks", .number = &ranks},  {.name = "--small", .given = &s.small},
                               {.name = "--quick", .given = &s.quick}, {.name = "--own", .word = &s.own},
                               {.name = "--only", .word = &s.only},    {.name = "--out", .word = &out}};
    struct gpu gpu;
    if (usage_asked(argv, about)) return 0;
    int cases = options_read("ranks", argv + (argc > 0), o, (int)(sizeof o / sizeof *o));
    if (cases) return cases < 0 ? 2 : 0; /* cases are of other programs */
    if (ranks > MOST_RANKS)
        return fprintf(stderr, "ranks: --ranks is %lld; 1 to %d\n", (long long)ranks, MOST_RANKS), 2;
    setenv("NCCL_NVLS_ENABLE", "0", 1);
    if (gpu_open_at(&gpu, (int)ranks - 1))
        return printf("ranks: there are no %lld GPUs, and nothing is measured\n", (long long)ranks), 0;
    s.ranks = (int)ranks;
    if (s.small) s.replays = 2;
    setenv("CODA_EXCHANGE", "nccl", 1);
    draw_piece();
    if (coda_group_local(s.group, s.ranks, NULL)) die("group");
    report_begin(&s.report, "ranks", s.small ? "/dev/null" : out);
    sizes(&s);
    if (wanted(&s, "split")) all_layers(&s);
    all_overlapped(&s);
    for (int i = 0; i < s.ranks; i++) coda_group_free(s.group[i]);
    return report_end(&s.report);
}
