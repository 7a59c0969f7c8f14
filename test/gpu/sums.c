/* sums.c -- see sums.h. */
#include "sums.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "util_device.h"
#include "util_random.h"

enum { MOST_DELAY_US = 3000 };

/* ---- A device each ---- */

static void *context[MOST_RANKS];

int sums_find_contexts(void)
{
    int n = device_contexts(context, MOST_RANKS);
    for (int r = n; r < MOST_RANKS && n; r++) context[r] = context[r % n];
    return n;
}

bool sums_use(int rank) { return device_use(context[rank]); }

/* ---- What is summed ---- */

static const struct {
    const char *operation;
    coda_dtype dtype;
    int64_t rows, columns;
    int axis; /* -1: every rank has the sum of all */
} sums[SUMS] = {
    {"all_reduce", CODA_BF16, 1, 8, -1},         {"all_reduce", CODA_F32, 3, 101, -1},
    {"all_reduce", CODA_BF16, 24, 264, -1},      {"reduce_scatter", CODA_F16, 24, 40, 0},
    {"reduce_scatter", CODA_BF16, 5, 24 * 7, 1}, {"reduce_scatter", CODA_F32, 7, 24 * 16, 1},
    {"all_gather", CODA_I32, 5, 26, 1},          {"all_gather", CODA_BF16, 3, 10, 0},
};

int64_t sums_times = 1;
static int64_t columns_of(int s) { return sums_times * sums[s].columns; }
static int64_t elements(int s) { return sums[s].rows * columns_of(s); }
static size_t width(int s) { return sums[s].dtype == CODA_F32 || sums[s].dtype == CODA_I32 ? 4 : 2; }
static bool gathers(int s) { return sums[s].operation[0] == 'a' && sums[s].axis >= 0; }

/* A graph of all of them, one behind the other; there are two of any name. */
static void print_graph(char *text, size_t size, int ranks, int which)
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
    for (int s = 0; s < SUMS; s++)
        n += (size_t)snprintf(text + n, size - n, "output %%%c%d = %%y%d\n", which ? 'o' : 'z', s, s);
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

bool rank_say(struct rank *r, const char *what)
{
    if (!r->error[0]) snprintf(r->error, sizeof r->error, "rank %d: %.900s", r->number, what);
    return false;
}

static bool load_plan(struct rank *r, int which)
{
    char text[4096];
    coda_graph *g = NULL;
    print_graph(text, sizeof text, r->ranks, which);
    if (coda_graph_parse(&g, text) || coda_compile(&r->plan[which], g, NULL))
        return rank_say(r, coda_error());
    coda_graph_free(g);
    return true;
}

static bool load_rank(struct rank *r)
{
    if (!sums_use(r->number)) return rank_say(r, "no context");
    if (!load_plan(r, 0) || ((r->two || r->swaps_at) && !load_plan(r, 1))) return false;
    r->args[0] = r->group;
    for (int i = 1; i < SUM_ARGS; i++) {
        coda_arg_info info = CODA_ARG_INFO_INIT;
        if (coda_plan_arg(r->plan[0], i, &info)) return rank_say(r, coda_error());
        if (!(r->args[i] = device_alloc(r->bytes[i] = info.bytes))) return rank_say(r, "no memory");
    }
    r->work = device_alloc(coda_plan_workspace(r->plan[0]));
    r->stream = device_stream_new();
    return (r->work && r->stream) || rank_say(r, "no workspace or stream");
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
    return good || rank_say(r, "no copy");
}

static bool compare(struct rank *r, uint64_t run)
{
    for (int s = 0; s < SUMS; s++) {
        void *y = malloc(r->bytes[1 + SUMS + s]);
        if (!y || !device_download(y, r->args[1 + SUMS + s], r->bytes[1 + SUMS + s]))
            return free(y), rank_say(r, "no result");
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

static int which(const struct rank *r, int run)
{
    return (r->two && run % 2) ^ (r->swaps_at && run >= r->swaps_at);
}

static bool capture(struct rank *r, int plan)
{
    if (!device_capture_begin_beside(r->stream)) return rank_say(r, "no capture");
    r->status = coda_run(r->plan[plan], r->args, NULL, r->work, r->stream);
    r->captured[plan] = device_capture_end(r->stream);
    return !r->status || rank_say(r, coda_error());
}

/* The first runs of all plans are not captured. */
static bool begin(struct rank *r, int run)
{
    int plan = which(r, run);
    bool first = run < (r->two ? 2 : 1);
    if (r->captures && !first && !r->captured[plan] && !capture(r, plan)) return false;
    if (r->captured[plan]) return device_replay(r->captured[plan], r->stream) || rank_say(r, device_reason());
    r->status = coda_run(r->plan[plan], r->args, NULL, r->work, r->stream);
    return !r->status || rank_say(r, coda_error());
}

static bool run_once(struct rank *r, int run)
{
    bool good = begin(r, run);
    if (r->behind) r->behind(r, run);
    if (good) good = device_stream_wait(r->stream) || rank_say(r, "the stream failed");
    if (good && coda_group_status(r->group)) good = rank_say(r, coda_error());
    return good;
}

static bool run_all_runs(struct rank *r)
{
    struct random draw = {r->seed * 31 + (uint64_t)r->number};
    bool good = true;
    for (int i = 0; i < r->runs && good && !r->gone; i++) {
        uint64_t run = r->seed + (uint64_t)i;
        if (!upload(r, run)) return false;
        delay(&draw);
        if (r->before && !r->before(r, i)) return r->gone = true;
        double began = device_clock();
        good = run_once(r, i);
        if (!good) r->seconds = device_clock() - began;
        good = good && compare(r, run);
    }
    return good;
}

void *rank_live(void *rank)
{
    struct rank *r = rank;
    bool good = load_rank(r);
    if (r->all) pthread_barrier_wait(r->all); /* what allocates may wait for kernels, which may wait for it */
    if (good) good = run_all_runs(r);
    if (!good) coda_group_abort(r->group);
    return NULL;
}

void rank_free_plans(struct rank *r)
{
    sums_use(r->number);
    for (int i = 1; i < SUM_ARGS; i++) device_free(r->args[i]);
    for (int i = 0; i < 2; i++) device_captured_free(r->captured[i]), r->captured[i] = NULL;
    device_free(r->work);
    if (r->stream) device_stream_free(r->stream);
    for (int i = 0; i < 2; i++) coda_plan_free(r->plan[i]), r->plan[i] = NULL;
}

void rank_free(struct rank *r)
{
    rank_free_plans(r);
    coda_group_free(r->group);
}

bool ranks_make(struct rank *r, int ranks, int timeout_ms)
{
    coda_group *group[MOST_RANKS];
    coda_group_options opt = CODA_GROUP_OPTIONS_INIT;
    opt.timeout_ms = timeout_ms;
    if (coda_group_local(group, ranks, &opt)) return false;
    for (int k = 0; k < ranks; k++) r[k] = (struct rank){.number = k, .ranks = ranks, .group = group[k]};
    return true;
}

void ranks_run(struct rank *r, int ranks)
{
    pthread_t thread[MOST_RANKS];
    pthread_barrier_t all;
    pthread_barrier_init(&all, NULL, (unsigned)ranks);
    for (int k = 0; k < ranks; k++) r[k].all = &all;
    for (int k = 0; k < ranks; k++)
        if (pthread_create(&thread[k], NULL, rank_live, &r[k])) abort();
    for (int k = 0; k < ranks; k++) pthread_join(thread[k], NULL);
    pthread_barrier_destroy(&all);
}
