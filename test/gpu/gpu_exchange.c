/*
 * gpu_exchange.c -- exchanges by our own kernels ($CODA_EXCHANGE): threads of this process with a GPU
 * each, or several on one where there are fewer. How groups end is gpu_ends.c's.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "gpu_case.h"
#include "sums.h"
#include "util_device.h"
#include "util_random.h"
#include "util_scale.h"

int gpu_exchange(void);

static uint64_t seed;

/* ---- Cases ---- */

static int check_sums(const char *how, int ranks, int runs, bool captures)
{
    struct rank r[MOST_RANKS];
    char name[64], what[1100] = "";
    int64_t bad = 0;
    setenv("CODA_EXCHANGE", how, 1);
    bool good = ranks_make(r, ranks, LONG_MS);
    for (int k = 0; k < ranks && good; k++)
        r[k].runs = runs, r[k].captures = captures, r[k].seed = seed + (uint64_t)ranks;
    if (good) ranks_run(r, ranks);
    for (int k = 0; k < ranks && good; k++) {
        bad += r[k].bad;
        if (r[k].bad) snprintf(what, sizeof what, "rank %d, run %llu", k, (unsigned long long)r[k].first_bad);
        if (r[k].error[0]) snprintf(what, sizeof what, "%s", r[k].error);
    }
    for (int k = 0; k < ranks && good; k++) rank_free(&r[k]);
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
    bool good = ranks_make(r, ranks, LONG_MS);
    for (int i = 0; i < 4 && good; i++) {
        setenv("CODA_EXCHANGE", plans[i].how, 1);
        sums_times = plans[i].times;
        for (int k = 0; k < ranks; k++) r[k].runs = 3, r[k].bad = 0;
        ranks_run(r, ranks);
        for (int k = 0; k < ranks; k++) {
            bad += i ? r[k].bad : 0;
            if (r[k].error[0]) snprintf(what, sizeof what, "%s", r[k].error);
            rank_free_plans(&r[k]);
        }
    }
    sums_times = 1;
    for (int k = 0; k < ranks && good; k++) coda_group_free(r[k].group);
    return gpu_case(good && !bad && !what[0], "inboxes that grow", "%lld wrong elements %s", (long long)bad,
                    what);
}

/* Two runs of all ranks, then one of rank 0 alone, whose kernel gives up; what the next call says. */
static void *run_alone(void *ctx)
{
    struct rank *r = ctx;
    sums_use(r->number);
    coda_status s = coda_run(r->plan[0], r->args, NULL, r->work, r->stream);
    bool freed = device_stream_wait(r->stream);
    if (s || (freed && coda_group_status(r->group))) rank_say(r, coda_error());
    r->runs = freed && coda_run(r->plan[0], r->args, NULL, r->work, r->stream) == CODA_E_DEVICE;
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
    for (int ms = timeout_ms; ranks_make(r, 2, ms); ms *= 2) {
        r[0].runs = r[1].runs = 2;
        ranks_run(r, 2);
        bool late = strstr(r[0].error, "missed exchange") || strstr(r[1].error, "missed exchange");
        if (!late || ms >= LONG_MS) return !r[0].error[0] && !r[1].error[0];
        for (int k = 0; k < 2; k++) rank_free(&r[k]);
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
    for (int k = 0; k < 2; k++) rank_free(&r[k]);
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
        if (!ranks_make(r, 3, LONG_MS)) break;
        struct end e = {r[victim].group, (useconds_t)(random_next(&draw) % 100000)};
        snprintf(who, sizeof who, "rank %d gave up: coda_group_abort", victim);
        for (int k = 0; k < 3; k++) r[k].runs = 3, r[k].captures = i % 2, r[k].seed = seed + (uint64_t)i;
        bool begun = !pthread_create(&other, NULL, end_at, &e);
        ranks_run(r, 3);
        if (begun) pthread_join(other, NULL);
        for (int k = 0; k < 3; k++) {
            bad += r[k].bad, through += !r[k].error[0];
            if (r[k].error[0] && !strstr(r[k].error, who)) /* or another rank, which that one has ended */
                if (!strstr(r[k].error, "gave up: ")) snprintf(what, sizeof what, "%s", r[k].error);
        }
        ended += through < 3;
        for (int k = 0; k < 3; k++) rank_free(&r[k]);
    }
    return gpu_case(!bad && !what[0], "groups that end at any moment",
                    "%d of %d ended, %lld wrong elements %s", ended, instants, (long long)bad, what);
}

/* ---- Many schedules ---- */

/* Two runs of a new group by each seed of the emulator, from `seed` on: 2, 3 or 4 ranks, one trip or two, at
 * once or replayed. */
static int check_seeds(int seeds)
{
    char what[1100] = "", number[24];
    uint64_t first = seed;
    int64_t bad = 0;
    int done = 0;
    for (; done < seeds && !bad && !what[0]; done++) {
        struct rank r[MOST_RANKS];
        seed = first + (uint64_t)done;
        int ranks = 2 + (int)(seed % 3);
        snprintf(number, sizeof number, "%llu", (unsigned long long)seed);
        setenv("CODA_SEED", number, 1);
        setenv("CODA_EXCHANGE", seed / 3 % 2 ? "two_shot" : "own", 1);
        if (!ranks_make(r, ranks, LONG_MS)) break;
        for (int k = 0; k < ranks; k++) r[k].runs = 2, r[k].captures = seed / 6 % 2, r[k].seed = seed;
        ranks_run(r, ranks);
        for (int k = 0; k < ranks; k++) {
            bad += r[k].bad;
            bool own = r[k].error[0] && !strstr(r[k].error, "gave up: coda_group_abort");
            if (own || (r[k].error[0] && !what[0]))
                snprintf(what, sizeof what, "seed %s: %.1000s", number, r[k].error);
        }
        for (int k = 0; k < ranks; k++) rank_free(&r[k]);
    }
    seed = first;
    snprintf(number, sizeof number, "%llu", (unsigned long long)first);
    setenv("CODA_SEED", number, 1);
    return gpu_case(done == seeds && !bad && !what[0], "seeds", "%d of %d from %s on: %lld wrong elements %s",
                    done, seeds, number, (long long)bad, what);
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
    int devices = sums_find_contexts();
    bool emulated = device_emulated(&gpu);
    printf("%d device%s\n", devices, devices == 1 ? "" : "s");
    const char *seeds = getenv("CODA_TEST_CASES"); /* nothing else */
    if (emulated && seeds) return check_seeds(atoi(seeds));
    if (emulated && devices > 1) failed += check_apart(); /* while no device reaches another one yet */
    int few = scale_is_full() ? 2500 : scale_is_thinned() ? 8 : 12;
    int runs = device_dry() ? 2 : emulated ? few : scale_is_full() ? 42000 : 1000;
    failed += check_sums("own", 2, runs, false) + check_sums("two_shot", 2, runs, false);
    failed += check_sums("own", 3, runs / 2, true) + check_sums("two_shot", 4, runs / 2, true);
    failed += check_sums("copies", 2, runs, false) + check_sums("copies", 3, runs / 2, true);
    failed += check_sums("copies", 2, runs / 2, true) + check_sums("copies", 4, runs / 4, false);
    failed += check_sums("copies", 8, runs / 16 + 1, true);
    if (devices > 1) failed += check_growth(emulated ? 3 : 2);
    if (!device_dry()) failed += check_missing(false) + check_missing(true);
    if (!device_dry()) failed += check_instants(!emulated ? 20 : scale_is_full() ? 1000 : 4);
    unsetenv("CODA_EXCHANGE");
    device_use(gpu.context);
    return failed;
}
