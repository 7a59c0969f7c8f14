/*
 * gpu_ends.c -- how a group ends whose exchanges are our own kernels: a rank of three never starts, vanishes
 * between two runs, stops longer than the others wait, runs another plan, or two plans in another order, or
 * memory runs out for it. It does so at a random run, and each time all ranks are told which rank it was, and
 * nobody has seen a wrong word; the next group, in the same contexts, works. Waits are not bounded here, but
 * printed.
 */
#include <dlfcn.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "gpu_case.h"
#include "sums.h"
#include "util_device.h"
#include "util_random.h"
#include "util_scale.h"

int gpu_ends(void);

/* ---- Memory that runs out, for one thread ---- */

static _Thread_local int left; /* allocations up to the one that fails; 0: none does */
static bool fails(void) { return left > 0 && !--left; }

#define WRAP(name, types, names)                                                                             \
    void *__real_##name types;                                                                               \
    void *__wrap_##name types;                                                                               \
    void *__wrap_##name types { return fails() ? NULL : __real_##name names; }
WRAP(malloc, (size_t n), (n))
WRAP(calloc, (size_t n, size_t size), (n, size))
WRAP(realloc, (void *p, size_t n), (p, n))

/* The same for the device's memory, which the emulator alone lets run out. */
static void fail_device_allocation(int number)
{
    void (*set)(int) = (void (*)(int))dlsym(RTLD_DEFAULT, "emu_fail_allocation");
    if (set) set(number);
}

/* ---- How it ends ---- */

enum how { NEVER, VANISHES, STOPS, OTHER_PLAN, OTHER_ORDER, NO_MEMORY, HOWS };
static const char *const names[HOWS] = {"never starts",     "vanishes",          "stops for too long",
                                        "has another plan", "has another order", "has no memory"};

enum { RANKS = 3, RUNS = 6 };

struct end {
    enum how how;
    int victim, at, allocation;
    bool device, replayed;
    int timeout_ms;
    uint64_t seed;
};

/* What may be said: of a rank that does not come, or that waits for words of another plan, "missed". */
static bool is_told(const struct end *e, const char *error)
{
    char who[40], also[40];
    snprintf(who, sizeof who, "rank %d", e->victim);
    snprintf(also, sizeof also, "rank %d missed exchange ", e->victim);
    if (e->how <= STOPS) return strstr(error, also);
    if (e->how == NO_MEMORY) return strcasestr(error, "memory") && strstr(error, who);
    return strstr(error, who) && (strstr(error, " of the group: ") || strstr(error, " missed exchange "));
}

/* Of the victim, before one of its runs. */
static bool before(struct rank *r, int run)
{
    const struct end *e = r->context;
    if (e->how == NO_MEMORY && e->device) fail_device_allocation(run == e->at ? e->allocation : 0);
    if (e->how == NO_MEMORY && !e->device) left = run == e->at ? e->allocation : 0;
    if (run < e->at) return true;
    while (e->how == STOPS && !coda_group_status(r->group)) usleep(1000);
    return e->how != NEVER && e->how != VANISHES;
}

static void behind(struct rank *r, int run)
{
    (void)r, (void)run;
    left = 0;
    fail_device_allocation(0);
}

static struct end drawn(struct random *draw, int how, uint64_t seed)
{
    struct end e = {.how = (enum how)how, .seed = seed, .timeout_ms = SHORT_MS};
    e.victim = (int)(random_next(draw) % RANKS);
    e.at = how == NEVER ? 0 : 1 + (int)(random_next(draw) % (RUNS - 1));
    if (how == NO_MEMORY) e.at = random_next(draw) % 4 == 0; /* the first run, or that of the second plan */
    e.allocation = 1 + (int)(random_next(draw) % 5);
    e.device = random_next(draw) % 2 && dlsym(RTLD_DEFAULT, "emu_fail_allocation");
    e.replayed = random_next(draw) % 2;
    if (e.device) e.allocation = 1 + e.allocation % 2;
    if (how == OTHER_ORDER && e.at < 2) e.at = 2; /* all have run both */
    return e;
}

static void set(struct rank *r, struct end *e, int k)
{
    bool is_victim = k == e->victim;
    r->runs = RUNS, r->seed = e->seed, r->captures = e->replayed && e->how != OTHER_PLAN;
    r->two = e->how == OTHER_ORDER || e->how == NO_MEMORY;
    if (!is_victim) return;
    r->context = e, r->before = before, r->behind = behind;
    r->swaps_at = e->how == OTHER_PLAN || e->how == OTHER_ORDER ? e->at : 0;
}

/* Where memory ran out behind what wants some, nothing happens. */
static bool comes_through(const struct end *e, const struct rank *r)
{
    bool all = e->how == NO_MEMORY;
    for (int k = 0; k < RANKS; k++) all = all && !r[k].error[0];
    return all;
}

/* What is wrong with an end, "" if nothing is; `late`: another rank was, too. */
static void judge(const struct end *e, const struct rank *r, char *what, size_t size, bool *late)
{
    what[0] = 0, *late = false;
    if (comes_through(e, r)) return;
    for (int k = 0; k < RANKS && !what[0]; k++) {
        bool silent = k == e->victim && (e->how == NEVER || e->how == VANISHES);
        if (silent ? !r[k].error[0] : is_told(e, r[k].error)) continue;
        *late = strstr(r[k].error, " missed exchange ");
        snprintf(what, size, "rank %d of 3 %s at run %d%s, and rank %d says \"%.500s\"", e->victim,
                 names[e->how], e->at, e->replayed ? ", replayed" : "", k, r[k].error);
    }
}

struct tally {
    int ended;
    int64_t bad;
    double seconds; /* the longest that a rank waited behind its deadline */
    char what[1100];
};

/* Once more, where a busy machine kept another rank from coming in time. */
static void end_one(struct end *e, struct tally *t)
{
    struct rank r[MOST_RANKS];
    bool late;
    static const char *const exchange[] = {"two_shot", "own", "copies", "own"};
    setenv("CODA_EXCHANGE", exchange[e->seed % 4], 1);
    if (!ranks_make(r, RANKS, e->timeout_ms)) return (void)snprintf(t->what, sizeof t->what, "no group");
    for (int k = 0; k < RANKS; k++) set(&r[k], e, k);
    ranks_run(r, RANKS);
    judge(e, r, t->what, sizeof t->what, &late);
    bool again = late && e->timeout_ms < LONG_MS;
    for (int k = 0; k < RANKS; k++) {
        t->bad += r[k].bad;
        if (!again) t->seconds = fmax(t->seconds, r[k].seconds - 1e-3 * e->timeout_ms);
    }
    t->ended += !again && !comes_through(e, r);
    for (int k = 0; k < RANKS; k++) rank_free(&r[k]);
    if (!again) return;
    e->timeout_ms *= 4;
    end_one(e, t);
}

static int check_ends(int how, int instants, uint64_t seed)
{
    struct random draw = {seed * 29 + (uint64_t)how};
    struct tally t = {.seconds = -1e-3 * SHORT_MS};
    int i = 0;
    for (; i < instants && !t.what[0]; i++) {
        struct end e = drawn(&draw, how, seed + (uint64_t)i);
        if (!i && how == NO_MEMORY) e.at = 0, e.allocation = 1; /* there is one */
        end_one(&e, &t);
    }
    return gpu_case(!t.bad && !t.what[0] && t.ended, names[how],
                    "%d of %d ended, the last %+.2f s behind its deadline, %lld wrong elements %s", t.ended,
                    i, t.seconds, (long long)t.bad, t.what);
}

/* ---- A rank that stops, and goes on in time ---- */

static bool stop(struct rank *r, int run)
{
    if (run == 2) usleep(*(useconds_t *)r->context);
    return true;
}

static int check_pause(useconds_t microseconds)
{
    struct rank r[MOST_RANKS];
    char what[1100] = "";
    int64_t bad = 0;
    setenv("CODA_EXCHANGE", "own", 1);
    bool good = ranks_make(r, RANKS, LONG_MS);
    for (int k = 0; k < RANKS && good; k++) r[k].runs = RUNS, r[k].captures = k == 1;
    r[1].before = stop, r[1].context = &microseconds;
    if (good) ranks_run(r, RANKS);
    for (int k = 0; k < RANKS && good; k++) {
        bad += r[k].bad;
        if (r[k].error[0]) snprintf(what, sizeof what, "%s", r[k].error);
        rank_free(&r[k]);
    }
    return gpu_case(good && !bad && !what[0], "stops and goes on", "%.1f s, %lld wrong elements %s",
                    1e-6 * microseconds, (long long)bad, what);
}

int gpu_ends(void)
{
    char err[JIT_ERROR_SIZE];
    struct jit_device gpu;
    int failed = 0;
    uint64_t seed = random_seed();
    setenv("CODA_EMULATOR_DEVICES", "4", 0);
    if (!device_open(&gpu, err)) return gpu_case(false, "ends", "%s", err);
    if (device_dry()) return gpu_skip("ends", "nothing runs here");
    int devices = sums_find_contexts(), instants = scale_is_full() ? 1000 / HOWS + 1 : 2;
    printf("%d device%s\n", devices, devices == 1 ? "" : "s");
    for (int how = 0; how < HOWS; how++) failed += check_ends(how, instants, seed);
    failed += check_pause(scale_is_full() ? 5000000 : 300000);
    unsetenv("CODA_EXCHANGE");
    device_use(gpu.context);
    return failed;
}
