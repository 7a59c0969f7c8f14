/*
 * timer.c -- runs of a plan under a clock.
 *
 * On a GPU an event is recorded behind each launch, which keeps the next one from starting early. The host
 * must be ahead, or an event would wait for the launch behind it: so before each run the device copies for as
 * long as the host needs to queue the run, which also writes over the L2. A whole run is a recording, as in
 * tuning. On the CPU device a program has ended when its runner returns.
 */
#include "timer.h"

#include <stdlib.h>
#include <string.h>
#include <time.h>

/* Bytes that a host copies to empty its caches. A sanitizer sees as much in few of them. */
#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
enum { HOST_HALF = 1 << 20 };
#else
enum { HOST_HALF = 32 << 20 };
#endif
enum { L2_SIZES = 4, CHUNKS = 64 };
static const int64_t USUAL_L2 = 16 << 20; /* where the driver does not say */
static const double QUEUE_US = 10;        /* that a host may take to queue a launch and an event */

double profile_clock(void)
{
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return 1e6 * (double)t.tv_sec + 1e-3 * (double)t.tv_nsec;
}

static bool is_gpu(const struct timer *t) { return t->run->plan->device == CODA_DEVICE_GPU; }

/* ---- Runs ---- */

static coda_status run(const struct timer *t, coda_stream stream, const struct run_watch *watch)
{
    const struct profiled *r = t->run;
    return executable_watched(r->plan, r->args, r->prepared, r->workspace, stream, &t->options, watch);
}

static coda_status note(struct timer *t)
{
    char err[JIT_ERROR_SIZE];
    int at = t->at++;
    if (!is_gpu(t)) return t->ended[at] = profile_clock(), CODA_OK;
    coda_status status = jit_mark(t->marks, at, err);
    return status ? fail(status, "profile: %s", err) : CODA_OK;
}

static coda_status note_first(void *timer) { return note(timer); }

static coda_status note_launch(void *timer, int index)
{
    const struct plan *p = &((struct timer *)timer)->run->plan->plan;
    bool last = index + 1 == p->programs || plan_leader(p, index + 1) == index + 1;
    return last ? note(timer) : CODA_OK; /* of the launch */
}

static coda_status between(const struct timer *t, int at, double *us)
{
    char err[JIT_ERROR_SIZE];
    if (!is_gpu(t)) return *us = t->ended[at] - t->ended[at - 1], CODA_OK;
    coda_status status = jit_marks_time(t->marks, at, us, err);
    return status ? fail(status, "profile: %s", err) : CODA_OK;
}

coda_status timer_each(struct timer *t, double *us)
{
    const struct run_watch watch = {note_first, note_launch, t};
    t->at = 0;
    coda_status status = timer_sweep(t);
    if (!status) status = run(t, is_gpu(t) ? jit_clock_stream(t->clock) : NULL, &watch);
    for (int i = 0; i < t->launches && !status; i++) status = between(t, i + 1, &us[i]);
    return status;
}

coda_status timer_whole(const struct timer *t, double *us)
{
    char err[JIT_ERROR_SIZE];
    coda_status status = timer_sweep(t);
    if (status) return status;
    if (is_gpu(t)) {
        status = jit_replay_time(t->replay, t->clock, us, err);
        return status ? fail(status, "profile: %s", err) : CODA_OK;
    }
    double began = profile_clock();
    status = run(t, NULL, NULL);
    *us = profile_clock() - began;
    return status;
}

/* ---- Caches ---- */

static void copy_chunk(void *timer, int64_t i)
{
    const struct timer *t = timer;
    size_t chunk = t->half / CHUNKS, at = (size_t)i * chunk;
    memcpy(t->swept + t->half + at, t->swept + at, chunk);
}

coda_status timer_sweep(const struct timer *t)
{
    char err[JIT_ERROR_SIZE];
    coda_status status = CODA_OK;
    if (!t->half) return CODA_OK;
    if (!is_gpu(t)) return parallel_for(CHUNKS, copy_chunk, (void *)t), CODA_OK;
    for (int i = 0; i < t->sweeps && !status; i++)
        status = jit_clock_copy(t->clock, t->swept + t->half, t->swept, t->half, err);
    return status ? fail(status, "profile: %s", err) : CODA_OK;
}

/* ---- Begin and end ---- */

/* A card that is nearly full is measured with warm caches. */
static void find_room(struct timer *t)
{
    char err[JIT_ERROR_SIZE];
    void *p = NULL;
    size_t half = HOST_HALF;
    if (is_gpu(t)) {
        int64_t l2 = t->run->plan->gpu.l2_size;
        for (half = (size_t)(L2_SIZES * (l2 > 0 ? l2 : USUAL_L2)); half > jit_memory_free() / 4;) half /= 2;
        if (!half || jit_alloc(&p, 2 * half, err)) return;
    } else if ((p = malloc(2 * half))) memset(p, 1, 2 * half);
    t->swept = p;
    t->half = p ? half : 0;
    t->sweeps = 1;
}

/* Enough copies for the host to be ahead of the device. */
static coda_status choose_sweeps(struct timer *t)
{
    char err[JIT_ERROR_SIZE];
    double us = 0;
    coda_status status = CODA_OK;
    for (int i = 0; i < 2 && !status; i++) { /* the first one is slower */
        status = jit_mark(t->marks, 0, err);
        if (!status && t->half) status = jit_clock_copy(t->clock, t->swept + t->half, t->swept, t->half, err);
        if (!status) status = jit_mark(t->marks, 1, err);
        if (!status) status = jit_marks_time(t->marks, 1, &us, err);
    }
    if (status) return fail(status, "profile: %s", err);
    t->sweeps = 1 + (int)(QUEUE_US * t->launches / MAX(us, 10));
    return CODA_OK;
}

static coda_status record(struct timer *t)
{
    char err[JIT_ERROR_SIZE], ignored[JIT_ERROR_SIZE];
    coda_status status = jit_record_begin(t->clock, err);
    if (status) return fail(status, "profile: %s", err);
    status = run(t, jit_clock_stream(t->clock), NULL);
    coda_status ended = jit_record_end(&t->replay, t->clock, status ? ignored : err);
    return status ? status : ended ? fail(ended, "profile: %s", err) : CODA_OK;
}

static coda_status open_gpu(struct timer *t)
{
    char err[JIT_ERROR_SIZE];
    if (jit_is_captured(t->run->stream)) return fail(CODA_E_INVALID, "profile: the stream is being captured");
    coda_status status = jit_stream_wait(t->run->stream, err);
    if (!status) status = jit_clock_new(&t->clock, err);
    if (!status) status = jit_marks_new(&t->marks, t->clock, t->launches + 2, err);
    if (status) return fail(status, "profile: %s", err);
    status = run(t, jit_clock_stream(t->clock), NULL); /* complains of arguments */
    if (status) return status;
    find_room(t);
    status = choose_sweeps(t);
    return status ? status : record(t);
}

coda_status timer_open(struct timer *t, const struct profiled *r, int threads)
{
    const struct plan *plan = &r->plan->plan;
    *t = (struct timer){.run = r, .options = {.size = sizeof t->options, .threads = threads}};
    for (int i = 0; i < plan->programs; i++)
        t->launches += !plan->program[i].prepare && plan_leader(plan, i) == i;
    if (is_gpu(t)) return open_gpu(t);
    t->ended = calloc((size_t)t->launches + 1, sizeof *t->ended);
    if (!t->ended) return fail(CODA_E_MEMORY, "out of memory for %d times", t->launches);
    coda_status status = run(t, NULL, NULL);
    if (!status) find_room(t);
    return status;
}

void timer_close(struct timer *t)
{
    jit_replay_free(t->replay);
    jit_marks_free(t->marks);
    if (t->run && is_gpu(t)) jit_free(t->swept);
    else free(t->swept);
    jit_clock_free(t->clock);
    free(t->ended);
}
