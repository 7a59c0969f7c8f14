/*
 * gpu_exchange.c -- exchanges by our own kernels ($CODA_EXCHANGE): threads of this process with a GPU
 * each, or several on one where there are fewer. Every element is compared with a sum in fp32, in the order
 * of ranks, rounded once; ranks come late, at random, some not at all.
 */
#include <math.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "gpu_case.h"
#include "util_device.h"
#include "util_random.h"
#include "util_scale.h"

int gpu_exchange(void);

enum { MOST_RANKS = 4, SUMS = 8, LONG_MS = 300000, SHORT_MS = 400, MOST_DELAY_US = 3000 };

/* ---- A device each ---- */

static void *context[MOST_RANKS];
static uint64_t seed;

/* How many GPUs there are; ranks beyond them share these. */
static int find_contexts(void)
{
    int n = device_contexts(context, MOST_RANKS);
    for (int r = n; r < MOST_RANKS && n; r++) context[r] = context[r % n];
    return n;
}

/* ---- What is summed ---- */

static const struct {
    const char *operation;
    coda_dtype dtype;
    int64_t rows, columns;
    int axis; /* -1: every rank has the sum of all */
} sums[SUMS] = {
    {"all_reduce", CODA_BF16, 1, 8, -1},         {"all_reduce", CODA_F32, 3, 101, -1},
    {"all_reduce", CODA_BF16, 24, 264, -1},      {"reduce_scatter", CODA_F16, 12, 40, 0},
    {"reduce_scatter", CODA_BF16, 5, 12 * 7, 1}, {"reduce_scatter", CODA_F32, 7, 12 * 16, 1},
    {"all_gather", CODA_I32, 5, 26, 1},          {"all_gather", CODA_BF16, 3, 10, 0},
};

static int64_t times = 1; /* as many columns */
static int64_t columns_of(int s) { return times * sums[s].columns; }
static int64_t elements(int s) { return sums[s].rows * columns_of(s); }
static size_t width(int s) { return sums[s].dtype == CODA_F32 || sums[s].dtype == CODA_I32 ? 4 : 2; }
static bool gathers(int s) { return sums[s].operation[0] == 'a' && sums[s].axis >= 0; }

/* A graph of all of them, one behind the other. */
static void print_graph(char *text, size_t size, int ranks)
{
    size_t n = (size_t)snprintf(text, size, "%%tp = group {ranks=%d}\n", ranks);
    for (int s = 0; s < SUMS; s++)
        n += (size_t)snprintf(text + n, size - n, "%%x%d = input %s [%lld,%lld]\n", s,
                              sums[s].dtype == CODA_F32   ? "f32"
                              : sums[s].dtype == CODA_I32 ? "i32"
                              : sums[s].dtype == CODA_F16 ? "f16"
                                                          : "bf16",
                              (long long)sums[s].rows, (long long)columns_of(s));
    for (int s = 0; s < SUMS; s++) {
        char before[24] = "", axis[24] = "";
        if (s) snprintf(before, sizeof before, ", %%y%d", s - 1);
        if (sums[s].axis >= 0) snprintf(axis, sizeof axis, " {axis=%d}", sums[s].axis);
        n += (size_t)snprintf(text + n, size - n, "%%y%d = %s %%x%d, %%tp%s%s\n", s, sums[s].operation, s,
                              before, axis);
    }
    for (int s = 0; s < SUMS; s++) n += (size_t)snprintf(text + n, size - n, "output %%z%d = %%y%d\n", s, s);
}

static float of_bits(uint32_t bits)
{
    float f;
    memcpy(&f, &bits, sizeof f);
    return f;
}

static uint32_t to_bits(float f)
{
    uint32_t bits;
    memcpy(&bits, &f, sizeof bits);
    return bits;
}

static uint32_t round_to(coda_dtype t, float f)
{
    uint32_t bits = to_bits(f);
    uint16_t half;
    if (t == CODA_F32) return bits;
    if (t == CODA_BF16) return isnan(f) ? 0x7fff : (bits + 0x7fff + (bits >> 16 & 1)) >> 16;
    const _Float16 h = (_Float16)f;
    memcpy(&half, &h, sizeof half);
    return half;
}

static float value_of(coda_dtype t, uint32_t bits)
{
    const uint16_t half = (uint16_t)bits;
    _Float16 h;
    if (t == CODA_F32) return of_bits(bits);
    if (t == CODA_BF16) return of_bits(bits << 16);
    memcpy(&h, &half, sizeof h);
    return (float)h;
}

/* Numbers that differ from run to run; now and then 0, -0, and NaNs of all bits. */
static uint32_t drawn(int s, uint64_t run, int rank, int64_t i)
{
    struct random r = {run * 1000003u + (uint64_t)s * 8191u + (uint64_t)rank * 131u + (uint64_t)i * 65537u};
    float f = (float)random_normal(&r);
    if (sums[s].dtype == CODA_I32) return (uint32_t)random_next(&r) | (uint32_t) - (random_next(&r) % 4 == 0);
    uint64_t odd = random_next(&r) % 64;
    if (odd == 0) return sums[s].dtype == CODA_F32 ? 0xffffffffu : 0xffffu;
    if (odd == 1) return round_to(sums[s].dtype, -0.0f);
    return round_to(sums[s].dtype, odd == 2 ? 0.0f : f);
}

static uint32_t element(const void *p, size_t size, int64_t i)
{
    return size == 4 ? ((const uint32_t *)p)[i] : ((const uint16_t *)p)[i];
}

/* Where in x element i of a rank's result is summed. */
static int64_t place(int s, int ranks, int rank, int64_t i)
{
    int64_t columns = columns_of(s), part = columns / ranks;
    if (sums[s].axis < 0) return i;
    if (!sums[s].axis) return rank * (sums[s].rows / ranks) * columns + i;
    return i / part * columns + rank * part + i % part;
}

/* Of which rank, and where in its x, element i of what is gathered comes from. */
static uint32_t gathered(int s, int ranks, uint64_t run, int64_t i)
{
    int64_t n = elements(s), columns = columns_of(s), wide = ranks * columns;
    if (!sums[s].axis) return drawn(s, run, (int)(i / n), i % n);
    return drawn(s, run, (int)(i % wide / columns), i / wide * columns + i % columns);
}

static int64_t wrong_words(int s, int ranks, uint64_t run, const void *y)
{
    int64_t bad = 0;
    for (int64_t i = 0; i < elements(s) * ranks; i++)
        bad += element(y, width(s), i) != gathered(s, ranks, run, i);
    return bad;
}

static int64_t wrong(int s, int ranks, int rank, uint64_t run, const void *y)
{
    int64_t n = sums[s].axis < 0 ? elements(s) : elements(s) / ranks, bad = 0;
    if (gathers(s)) return wrong_words(s, ranks, run, y);
    for (int64_t i = 0; i < n; i++) {
        coda_dtype t = sums[s].dtype;
        int64_t at = place(s, ranks, rank, i);
        float sum = value_of(t, drawn(s, run, 0, at));
        for (int r = 1; r < ranks; r++) sum += value_of(t, drawn(s, run, r, at));
        uint32_t want = round_to(t, sum), got = element(y, width(s), i);
        bad += want != got && !(isnan(sum) && isnan(value_of(t, got)));
    }
    return bad;
}

/* ---- A rank ---- */

struct rank {
    int number, ranks, runs;
    bool captures;
    uint64_t seed;
    pthread_barrier_t *all;
    coda_group *group;
    coda_plan *plan;
    void *args[1 + 2 * SUMS], *work, *stream;
    size_t bytes[1 + 2 * SUMS];
    int64_t bad;
    uint64_t first_bad; /* run */
    char error[1024];
};

static bool say(struct rank *r, const char *what)
{
    if (!r->error[0]) snprintf(r->error, sizeof r->error, "rank %d: %.900s", r->number, what);
    return false;
}

static bool load_rank(struct rank *r)
{
    char text[4096];
    coda_graph *g = NULL;
    print_graph(text, sizeof text, r->ranks);
    if (!device_use(context[r->number])) return say(r, "no context");
    if (coda_graph_parse(&g, text) || coda_compile(&r->plan, g, NULL)) return say(r, coda_error());
    coda_graph_free(g);
    r->args[0] = r->group;
    for (int i = 1; i <= 2 * SUMS; i++) {
        coda_arg_info info = CODA_ARG_INFO_INIT;
        if (coda_plan_arg(r->plan, i, &info)) return say(r, coda_error());
        if (!(r->args[i] = device_alloc(r->bytes[i] = info.bytes))) return say(r, "no memory");
    }
    r->work = device_alloc(coda_plan_workspace(r->plan));
    r->stream = device_stream_new();
    return (r->work && r->stream) || say(r, "no workspace or stream");
}

static bool upload(struct rank *r, uint64_t run)
{
    bool good = true;
    for (int s = 0; s < SUMS && good; s++) {
        void *x = malloc(r->bytes[1 + s]);
        for (int64_t i = 0; i < elements(s) && x; i++) {
            uint32_t bits = drawn(s, run, r->number, i);
            if (width(s) == 4) ((uint32_t *)x)[i] = bits;
            else ((uint16_t *)x)[i] = (uint16_t)bits;
        }
        good = x && device_upload(r->args[1 + s], x, r->bytes[1 + s]) &&
               device_fill(r->args[1 + SUMS + s], 0xee, r->bytes[1 + SUMS + s]);
        free(x);
    }
    return good || say(r, "no copy");
}

static bool compare(struct rank *r, uint64_t run)
{
    for (int s = 0; s < SUMS; s++) {
        void *y = malloc(r->bytes[1 + SUMS + s]);
        if (!y || !device_download(y, r->args[1 + SUMS + s], r->bytes[1 + SUMS + s]))
            return free(y), say(r, "no result");
        int64_t bad = wrong(s, r->ranks, r->number, run, y);
        if (bad && !r->bad) r->first_bad = run;
        r->bad += bad;
        free(y);
    }
    return true;
}

/* Some run is late, by a rank of its own. */
static void delay(struct random *draw)
{
    if (random_next(draw) % 4 == 0) usleep((useconds_t)(random_next(draw) % MOST_DELAY_US));
}

static void *capture(struct rank *r)
{
    if (!device_capture_begin_beside(r->stream)) return say(r, "no capture"), NULL;
    coda_status s = coda_run(r->plan, r->args, NULL, r->work, r->stream);
    void *captured = device_capture_end(r->stream);
    if (s) say(r, coda_error());
    return s ? NULL : captured;
}

static bool run_all_runs(struct rank *r)
{
    struct random draw = {r->seed * 31 + (uint64_t)r->number};
    void *captured = NULL;
    bool good = true;
    for (int i = 0; i < r->runs && good; i++) {
        uint64_t run = r->seed + (uint64_t)i;
        if (r->captures && i == 1 && !(captured = capture(r))) return false;
        if (!upload(r, run)) return false;
        delay(&draw);
        if (captured) good = device_replay(captured, r->stream) || say(r, "no replay");
        else good = !coda_run(r->plan, r->args, NULL, r->work, r->stream) || say(r, coda_error());
        if (good) good = device_stream_wait(r->stream) || say(r, "the stream failed");
        if (good && coda_group_status(r->group)) good = say(r, coda_error());
        good = good && compare(r, run);
    }
    device_captured_free(captured);
    return good;
}

static void *run_rank(void *ctx)
{
    struct rank *r = ctx;
    bool good = load_rank(r);
    pthread_barrier_wait(r->all); /* what allocates may wait for kernels, which may wait for it */
    if (good) good = run_all_runs(r);
    if (!good) coda_group_abort(r->group);
    return NULL;
}

static void free_plan(struct rank *r)
{
    device_use(context[r->number]);
    for (int i = 1; i <= 2 * SUMS; i++) device_free(r->args[i]);
    device_free(r->work);
    if (r->stream) device_stream_free(r->stream);
    coda_plan_free(r->plan);
}

static void free_rank(struct rank *r)
{
    free_plan(r);
    coda_group_free(r->group);
}

static bool make_group(struct rank *r, int ranks, int timeout_ms)
{
    coda_group *group[MOST_RANKS];
    coda_group_options opt = CODA_GROUP_OPTIONS_INIT;
    opt.timeout_ms = timeout_ms;
    if (coda_group_local(group, ranks, &opt)) return false;
    for (int k = 0; k < ranks; k++) r[k] = (struct rank){.number = k, .ranks = ranks, .group = group[k]};
    return true;
}

static void run_together(struct rank *r, int ranks)
{
    pthread_t thread[MOST_RANKS];
    pthread_barrier_t all;
    pthread_barrier_init(&all, NULL, (unsigned)ranks);
    for (int k = 0; k < ranks; k++) r[k].all = &all;
    for (int k = 0; k < ranks; k++)
        if (pthread_create(&thread[k], NULL, run_rank, &r[k])) abort();
    for (int k = 0; k < ranks; k++) pthread_join(thread[k], NULL);
    pthread_barrier_destroy(&all);
}

/* ---- Cases ---- */

static int check_sums(const char *how, int ranks, int runs, bool captures)
{
    struct rank r[MOST_RANKS];
    char name[64], what[1100] = "";
    int64_t bad = 0;
    setenv("CODA_EXCHANGE", how, 1);
    bool good = make_group(r, ranks, LONG_MS);
    for (int k = 0; k < ranks && good; k++)
        r[k].runs = runs, r[k].captures = captures, r[k].seed = seed + (uint64_t)ranks;
    if (good) run_together(r, ranks);
    for (int k = 0; k < ranks && good; k++) {
        bad += r[k].bad;
        if (r[k].bad) snprintf(what, sizeof what, "rank %d, run %llu", k, (unsigned long long)r[k].first_bad);
        if (r[k].error[0]) snprintf(what, sizeof what, "%s", r[k].error);
    }
    for (int k = 0; k < ranks && good; k++) free_rank(&r[k]);
    snprintf(name, sizeof name, "%s, %d ranks, %d runs%s", how, ranks, runs, captures ? ", replayed" : "");
    return gpu_case(good && !bad && !what[0], name, "%lld wrong elements %s", (long long)bad, what);
}

/* A group that has run the graph by NCCL, which sums three in another way; then larger ones. */
static int check_growth(int ranks)
{
    static const struct {
        const char *how;
        int times;
    } plans[] = {{"nccl", 1}, {"own", 1}, {"own", 2}, {"own", 3}};
    struct rank r[MOST_RANKS];
    char what[1100] = "";
    int64_t bad = 0;
    bool good = make_group(r, ranks, LONG_MS);
    for (int i = 0; i < 4 && good; i++) {
        setenv("CODA_EXCHANGE", plans[i].how, 1);
        times = plans[i].times;
        for (int k = 0; k < ranks; k++) r[k].runs = 3, r[k].bad = 0;
        run_together(r, ranks);
        for (int k = 0; k < ranks; k++) {
            bad += i ? r[k].bad : 0;
            if (r[k].error[0]) snprintf(what, sizeof what, "%s", r[k].error);
            free_plan(&r[k]);
        }
    }
    times = 1;
    for (int k = 0; k < ranks && good; k++) coda_group_free(r[k].group);
    return gpu_case(good && !bad && !what[0], "inboxes that grow", "%lld wrong elements %s", (long long)bad,
                    what);
}

/* Two runs of all ranks, then one of rank 0 alone, whose kernel gives up; what the next call says. */
static void *run_alone(void *ctx)
{
    struct rank *r = ctx;
    device_use(context[r->number]);
    coda_status s = coda_run(r->plan, r->args, NULL, r->work, r->stream);
    bool freed = device_stream_wait(r->stream);
    if (s || (freed && coda_group_status(r->group))) say(r, coda_error());
    r->runs = freed && coda_run(r->plan, r->args, NULL, r->work, r->stream) == CODA_E_DEVICE;
    return NULL;
}

static void *abort_soon(void *ctx)
{
    usleep(SHORT_MS * 500);
    coda_group_abort(ctx);
    return NULL;
}

/* Two runs of a group of two; of one that waits longer, if a rank was late by itself. */
static bool run_two(struct rank *r, int timeout_ms)
{
    for (int ms = timeout_ms; make_group(r, 2, ms); ms *= 2) {
        r[0].runs = r[1].runs = 2;
        run_together(r, 2);
        bool late = strstr(r[0].error, "missed exchange") || strstr(r[1].error, "missed exchange");
        if (!late || ms >= LONG_MS) return !r[0].error[0] && !r[1].error[0];
        for (int k = 0; k < 2; k++) free_rank(&r[k]);
    }
    return false;
}

static int check_missing(bool aborts)
{
    struct rank r[MOST_RANKS];
    pthread_t alone, other;
    const char *wanted = aborts ? "coda_group_abort" : "rank 1 missed exchange ";
    bool good = run_two(r, aborts ? LONG_MS : SHORT_MS);
    time_t began = time(NULL);
    if (good && !pthread_create(&alone, NULL, run_alone, &r[0])) {
        if (aborts && !pthread_create(&other, NULL, abort_soon, r[1].group)) pthread_join(other, NULL);
        pthread_join(alone, NULL);
    }
    bool soon = time(NULL) - began < LONG_MS / 2000;
    good = good && soon && r[0].runs && strstr(r[0].error, wanted) && coda_group_status(r[1].group);
    int failed = gpu_case(good, aborts ? "a group that is aborted" : "a rank that does not come", "%s %s",
                          r[0].error, r[1].error);
    for (int k = 0; k < 2; k++) free_rank(&r[k]);
    return failed + check_sums("own", 2, 2, false); /* in the same contexts */
}

/* ---- Ends at any moment ---- */

struct end {
    coda_group *group;
    useconds_t after;
};

static void *end_at(void *ctx)
{
    const struct end *e = ctx;
    usleep(e->after);
    coda_group_abort(e->group);
    return NULL;
}

/* One rank of three ends the group at some moment: the others end, too, and say who it was, or have come
 * through; and nobody has seen a wrong word. Each time in a new group. */
static int check_instants(int instants)
{
    struct random draw = {seed * 17 + 5};
    char what[1100] = "";
    int64_t bad = 0;
    int ended = 0;
    setenv("CODA_EXCHANGE", "own", 1);
    for (int i = 0; i < instants && !what[0]; i++) {
        struct rank r[MOST_RANKS];
        pthread_t other;
        char who[40];
        int victim = (int)(random_next(&draw) % 3), through = 0;
        if (!make_group(r, 3, LONG_MS)) break;
        struct end e = {r[victim].group, (useconds_t)(random_next(&draw) % 100000)};
        snprintf(who, sizeof who, "rank %d gave up: coda_group_abort", victim);
        for (int k = 0; k < 3; k++) r[k].runs = 3, r[k].captures = i % 2, r[k].seed = seed + (uint64_t)i;
        bool begun = !pthread_create(&other, NULL, end_at, &e);
        run_together(r, 3);
        if (begun) pthread_join(other, NULL);
        for (int k = 0; k < 3; k++) {
            bad += r[k].bad, through += !r[k].error[0];
            if (r[k].error[0] && !strstr(r[k].error, who)) /* or another rank, which that one has ended */
                if (!strstr(r[k].error, "gave up: ")) snprintf(what, sizeof what, "%s", r[k].error);
        }
        ended += through < 3;
        for (int k = 0; k < 3; k++) free_rank(&r[k]);
    }
    return gpu_case(!bad && !what[0], "groups that end at any moment",
                    "%d of %d ended, %lld wrong elements %s", ended, instants, (long long)bad, what);
}

/* NCCL does it where GPUs do not reach each other. */
static int check_apart(void)
{
    setenv("CODA_EMULATOR_NO_PEERS", "1", 1);
    int failed = check_sums("own", 2, 2, true);
    unsetenv("CODA_EMULATOR_NO_PEERS");
    return failed;
}

int gpu_exchange(void)
{
    char err[JIT_ERROR_SIZE];
    struct jit_device gpu;
    int failed = 0;
    seed = random_seed();
    setenv("CODA_EMULATOR_DEVICES", "4", 0);
    if (!device_open(&gpu, err)) return gpu_case(false, "exchange", "%s", err);
    int devices = find_contexts();
    bool emulated = device_emulated(&gpu);
    printf("%d device%s\n", devices, devices == 1 ? "" : "s");
    if (emulated && devices > 1) failed += check_apart(); /* while no device reaches another one yet */
    int runs = device_dry() ? 2 : emulated ? (scale_is_full() ? 2500 : 50) : scale_is_full() ? 42000 : 1000;
    failed += check_sums("own", 2, runs, false) + check_sums("two_shot", 2, runs, false);
    failed += check_sums("own", 3, runs / 2, true) + check_sums("two_shot", 4, runs / 2, true);
    if (devices > 1) failed += check_growth(emulated ? 3 : 2);
    if (!device_dry()) failed += check_missing(false) + check_missing(true);
    if (!device_dry()) failed += check_instants(!emulated ? 20 : scale_is_full() ? 1000 : 8);
    unsetenv("CODA_EXCHANGE");
    device_use(gpu.context);
    return failed;
}
