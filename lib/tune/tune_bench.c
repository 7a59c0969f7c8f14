/*
 * tune_bench.c -- benchmarks the candidates of tune_candidates.c, on the device.
 *
 * Each candidate runs once before it is timed: if what it stores is not what the plan's own programs store,
 * it is out. Then they run in turns, as recordings of several runs on one set of tensors after the other, and
 * the medians count. Turns are short, so all see one clock; a thorough benchmark lets each large product have
 * long ones, of which the second half counts: then each has the clock that its own power leaves it.
 */
#include "tune_candidates.h"

#include "schedule.h"

#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>

enum { LONG_ROUNDS = 3, WARM = 2, MOST_RUNS = 128, MOST_TENSORS = 256 };
static const double LONG_US = 60e3; /* of a long turn */
static const double LARGE_US = 100; /* of products whose power counts */

static void drop(struct candidate *w)
{
    jit_replay_free(w->replay);
    executable_free(w->plan);
    w->replay = NULL;
    w->plan = NULL;
}

/* ---- Runs ---- */

static coda_status run(const struct benchmark *c, const struct candidate *w, int set)
{
    void *args[MOST_TENSORS];
    for (int i = 0; i < c->tensors.n; i++) args[i] = tensor_address(&c->tensors, i, set);
    return executable_run(w->plan, args, NULL, NULL, jit_clock_stream(c->clock), NULL);
}

/* How it stores the tensor: EFFECT_WRITE or EFFECT_ADD; 0: it does not. */
static unsigned stores(const struct candidate *w, int tensor)
{
    const struct plan *p = &w->plan->plan;
    for (int i = 0; i < p->programs; i++)
        for (int j = 0; j < p->program[i].ports; j++) {
            const struct tensor_use *port = &p->program[i].port[j];
            if (port->role == USE_STORE && p->buffer[port->buffer].arg == tensor) return use_effect(port);
        }
    return 0;
}

/* What is written begins as NaN, what is added to as the same numbers for every candidate. */
static coda_status begin_result(const struct benchmark *c, const struct candidate *w, int tensor)
{
    switch (stores(w, tensor)) {
    case 0: return CODA_OK;
    case EFFECT_ADD: return tensor_fill(&c->tensors, tensor);
    default: return tensor_poison(&c->tensors, tensor);
    }
}

static coda_status run_alone(const struct benchmark *c, const struct candidate *w)
{
    char err[JIT_ERROR_SIZE];
    coda_status status = CODA_OK;
    for (int i = 0; i < c->tensors.n && !status; i++) status = begin_result(c, w, i);
    if (!status) status = run(c, w, 0);
    if (status) return status;
    status = jit_clock_wait(c->clock, err);
    return status ? fail(status, "tuning: %s: %s", w->name, err) : CODA_OK;
}

/* Compares one tensor as both leave it. What the device cannot run, a cluster that it has no room for, is
 * not the same; if it is the device that has failed, so will what follows. */
static coda_status compare(const struct benchmark *c, const struct candidate *w, int tensor, bool *same)
{
    void *got = NULL, *want = NULL;
    const struct candidate *reference = &c->candidate[w->reference];
    coda_status status = run_alone(c, reference);
    if (!status) status = tensor_download(&want, &c->tensors, tensor);
    bool ran = !status && !run_alone(c, w), wide = dtype_bits(c->program->a.dtype) == 32;
    if (ran) status = tensor_download(&got, &c->tensors, tensor);
    if (!status) *same = ran && tensor_agrees(&c->tensors.tensor[tensor], got, want, wide);
    free(got);
    free(want);
    return status;
}

static coda_status check(struct benchmark *c)
{
    coda_status status = CODA_OK;
    for (int i = 0; i < c->candidates && !status; i++) {
        struct candidate *w = &c->candidate[i];
        bool same = true;
        for (int t = 0; w->plan && w->reference >= 0 && t < c->tensors.n && same && !status; t++) {
            const struct candidate *reference = &c->candidate[w->reference];
            if (reference->plan && stores(w, t) && stores(reference, t)) status = compare(c, w, t, &same);
        }
        if (!same || (w->reference >= 0 && !c->candidate[w->reference].plan)) drop(w);
    }
    return status;
}

/* ---- Time ---- */

/* Enough runs for a recording to last, by what such a GPU does at best; and how often it is replayed. */
static void choose_runs(struct benchmark *c)
{
    double floor_us = program_flops(c->program) / 800e6 + (double)program_bytes(c->program) / 4.5e6 + 2;
    int sets = c->tensors.sets, times = (int)(400 / floor_us) / sets;
    bool large = c->tuner->thorough && floor_us > LARGE_US;
    c->runs = sets * MAX(1, MIN(times, MOST_RUNS / sets));
    c->rounds = large ? LONG_ROUNDS : ROUNDS;
    c->repeats = large ? 2 + (int)(LONG_US / (floor_us * c->runs)) : 1;
}

static coda_status record(const struct benchmark *c, struct candidate *w)
{
    char err[JIT_ERROR_SIZE], ignored[JIT_ERROR_SIZE];
    coda_status status = jit_record_begin(c->clock, err);
    if (status) return fail(status, "tuning: %s", err);
    for (int i = 0; i < c->runs && !status; i++) status = run(c, w, i % c->tensors.sets);
    coda_status ended = jit_record_end(&w->replay, c->clock, status ? ignored : err);
    return status ? status : ended ? fail(ended, "tuning: %s", err) : CODA_OK;
}

static int by_value(const void *a, const void *b)
{
    double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

/* The mean of the turn's second half. */
static coda_status take_turn(const struct benchmark *c, const struct candidate *w, double *us)
{
    char err[JIT_ERROR_SIZE];
    double sum = 0;
    for (int i = 0; i < c->repeats; i++) {
        double once;
        coda_status status = jit_replay_time(w->replay, c->clock, &once, err);
        if (status) return fail(status, "tuning: %s", err);
        if (i >= c->repeats / 2) sum += once;
    }
    *us = sum / (c->repeats - c->repeats / 2);
    return CODA_OK;
}

static coda_status time_candidates(struct benchmark *c)
{
    coda_status status = CODA_OK;
    choose_runs(c);
    for (int i = 0; i < c->candidates && !status; i++)
        if (c->candidate[i].plan) status = record(c, &c->candidate[i]);
    for (int round = -WARM; round < c->rounds && !status; round++)
        for (int i = 0; i < c->candidates && !status; i++)
            if (c->candidate[i].plan)
                status = take_turn(c, &c->candidate[i], &c->candidate[i].us[MAX(round, 0)]);
    return status;
}

static void report(struct benchmark *c, struct figures *out)
{
    for (int i = 0; i < c->candidates; i++) {
        struct candidate *w = &c->candidate[i];
        if (!w->plan) continue;
        qsort(w->us, (size_t)c->rounds, sizeof *w->us, by_value);
        figures_add(out, w->us[c->rounds / 2] / c->runs, "%s", w->name);
    }
}

/* ---- The benchmark ---- */

static void compile_candidate(void *ctx, int64_t i)
{
    struct benchmark *c = ctx;
    struct candidate *w = &c->candidate[i];
    if (w->status) return;
    w->status = kernels_compile(w->plan, 0, &c->tuner->jit, 0, NULL);
    if (w->status) fail_save(&w->failure);
}

/* The first candidate is the plan itself. */
static coda_status load_candidates(struct benchmark *c)
{
    for (int i = 0; i < c->candidates; i++) {
        struct candidate *w = &c->candidate[i];
        if (w->failure.status) fail_restore(&w->failure);
        if (!w->status) w->status = kernels_load(w->plan, &c->tuner->jit);
        if (w->status && (i == 0 || w->status == CODA_E_MEMORY)) return w->status;
        if (w->status) drop(w);
    }
    return CODA_OK;
}

static coda_status assemble(struct benchmark *c, struct figures *out)
{
    int threads = 1;
    coda_status status = kernels_threads(&threads);
    if (!status) status = candidates_add(c);
    if (c->tensors.n > MOST_TENSORS)
        snprintf(out->why, sizeof out->why, "%d tensors, more than %d", c->tensors.n, MOST_TENSORS);
    else if (!status) parallel_for_most(c->candidates, threads, compile_candidate, c);
    return status;
}

static coda_status measure(struct benchmark *c, struct figures *out)
{
    char err[JIT_ERROR_SIZE];
    coda_status status =
        tensors_load(&c->tensors, c->tuner->options.target.l2_size, out->why, sizeof out->why);
    if (status || out->why[0]) return status;
    status = load_candidates(c);
    if (status) return status;
    status = jit_clock_new(&c->clock, err);
    if (status) return fail(status, "tuning: %s", err);
    status = check(c);
    if (!status) status = time_candidates(c);
    if (!status) report(c, out);
    return status;
}

static void release(struct benchmark *c)
{
    for (int i = 0; i < c->candidates; i++) drop(&c->candidate[i]);
    jit_clock_free(c->clock);
    tensors_free(&c->tensors);
}

/* One at a time: what runs beside another is not measured. */
coda_status benchmark(struct figures *out, const struct tuner *t, const struct plan *plan, int index)
{
    static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
    struct benchmark *c = calloc(1, sizeof *c);
    struct failure before;
    *out = (struct figures){0};
    if (!c) return fail(CODA_E_MEMORY, "out of memory for a benchmark");
    c->tuner = t;
    c->usual = plan;
    c->program = &plan->program[index];
    fail_save(&before);
    coda_status status = assemble(c, out);
    pthread_mutex_lock(&lock);
    if (!status && !out->why[0]) status = measure(c, out);
    release(c);
    pthread_mutex_unlock(&lock);
    if (!status) fail_restore(&before);
    plan_free(&c->apart);
    free(c);
    return status;
}
