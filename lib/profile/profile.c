/*
 * profile.c -- each launch of a plan beside its floor, and their sum beside the run.
 *
 * Rounds take turns, one run launch by launch and one as a whole, so that both see the same clocks and the
 * same heat. Medians count.
 */
#include "profile.h"

#include "launches.h"
#include "runner.h"
#include "schedule.h"
#include "timer.h"

#include <stdlib.h>
#include <string.h>

enum { WARM = 2, LEAST_ROUNDS = 5, MOST_ROUNDS = 100, RANKS_ROUNDS = 10 };
static const double BUDGET_US = 5e5;

struct session {
    struct timer timer;
    const struct profiled *run;
    const coda_profile_options *opt;
    coda_profile *out;
    int rounds;
    double *each;  /* of launch i in round r: [i * rounds + r], us */
    double *whole; /* of round r */
    double *once;  /* launches of one round */
};

/* ---- Words ---- */

static const char *keep(struct arena *a, struct text *t)
{
    const char *s = t->failed ? NULL : arena_string(a, text_str(t));
    text_free(t);
    if (!s) a->failed = true;
    return s ? s : "";
}

static const char *kernel_of(struct arena *a, const struct coda_plan *p, int index)
{
    const struct compiled_program *c = &p->program[index];
    struct text t = {0};
    if (c->kernel != KERNEL_NONE) text_append(&t, p->kernel[c->kernel].info.name);
    else if (c->runner && c->runner->name) text_append(&t, c->runner->name);
    else {
        struct text head = {0};
        program_print_head(&p->plan.program[index], &head);
        text_printf(&t, "%.*s", (int)strcspn(text_str(&head), " "), text_str(&head));
        t.failed |= head.failed;
        text_free(&head);
    }
    return keep(a, &t);
}

static const char *work_of(struct arena *a, const struct program *q)
{
    struct text t = {0};
    launch_print(q, &t);
    return keep(a, &t);
}

/* By the name of the argument that it becomes, or the graph's. */
static void print_value(const struct coda_plan *p, const struct tensor_use *u, struct text *t)
{
    const struct buffer *b = &p->plan.buffer[u->buffer];
    const char *comma = t->length ? ", " : "";
    if (b->space == SPACE_ARG) text_printf(t, "%s%%%s", comma, p->place[b->arg].name);
    else if (p->plan.graph && u->value >= 0)
        text_printf(t, "%s%s", comma, value_text(p->plan.graph, u->value).s);
}

/* Values that it stores; of a kernel of its own, the one that it is for. */
static const char *makes_of(struct arena *a, const struct coda_plan *p, const struct program *q)
{
    struct text t = {0};
    for (int i = 0; i < q->steps; i++)
        if (q->step[i].kind == STEP_STORE) print_value(p, &q->port[q->step[i].port], &t);
    if (!t.length && p->plan.graph && q->root >= 0) text_append(&t, value_text(p->plan.graph, q->root).s);
    return keep(a, &t);
}

static const char *scope_of(struct arena *a, const struct plan *p, const struct program *q)
{
    static const char before[] = " in ";
    const struct tensor_names names = {p->graph, p->buffer};
    struct text t = {0};
    program_print_scopes(&names, q, &t);
    const char *s = keep(a, &t);
    return strncmp(s, before, sizeof before - 1) ? s : s + sizeof before - 1;
}

static const char *tile_of(struct arena *a, const struct coda_plan *p, int index)
{
    struct text t = {0};
    if (p->device == CODA_DEVICE_GPU) schedule_print(&p->plan.program[index], &p->plan.schedule[index], &t);
    return keep(a, &t);
}

static coda_profile_launch describe(struct arena *a, const struct coda_plan *p, int index)
{
    const struct program *q = &p->plan.program[index];
    return (coda_profile_launch){.size = sizeof(coda_profile_launch),
                                 .program = index,
                                 .kernel = kernel_of(a, p, index),
                                 .work = work_of(a, q),
                                 .makes = makes_of(a, p, q),
                                 .scope = scope_of(a, &p->plan, q),
                                 .tile = tile_of(a, p, index),
                                 .bytes = program_bytes(q),
                                 .flops = program_flops(q)};
}

/* A launch of several programs is called by the first. */
static void add_member(coda_profile_launch *l, const struct program *q)
{
    l->bytes = add_counts(l->bytes, program_bytes(q));
    l->flops += program_flops(q);
}

static const char *device_of(struct arena *a, const struct coda_plan *p)
{
    const char *s = p->device == CODA_DEVICE_GPU ? arena_string(a, p->gpu.name)
                                                 : arena_format(a, "cpu %s", vectors_name());
    return s ? s : "";
}

static coda_status describe_all(coda_profile *f, const struct coda_plan *p)
{
    struct arena *a = &f->arena;
    f->total = (coda_profile_total){.size = sizeof f->total, .device = device_of(a, p)};
    f->launch = ARENA_NEW(a, coda_profile_launch, p->plan.programs + 1);
    for (int i = 0; i < p->plan.programs && !a->failed; i++) {
        const struct program *q = &p->plan.program[i];
        if (q->prepare) continue;
        if (plan_leader(&p->plan, i) == i) f->launch[f->total.launches++] = describe(a, p, i);
        else add_member(&f->launch[f->total.launches - 1], q);
        f->total.bytes = add_counts(f->total.bytes, program_bytes(q));
        f->total.flops += program_flops(q);
    }
    return a->failed ? fail(CODA_E_MEMORY, "out of memory for a profile of %d programs", p->plan.programs)
                     : CODA_OK;
}

/* ---- Floors ---- */

/* The dtype that a program multiplies; 0: none. */
static coda_dtype multiplied(const struct program *q)
{
    if (!program_flops(q)) return (coda_dtype)0;
    if (q->kind == PROGRAM_GEMM) return q->a.dtype;
    const struct tensor_use *u = q->own ? own_use(q->own, q->spec, 0) : NULL;
    return u ? u->dtype : (coda_dtype)0;
}

/* One measurement for each dtype. */
static coda_status product_rate(struct session *s, int launch, double *rate)
{
    const struct coda_plan *p = s->run->plan;
    coda_dtype dtype = multiplied(&p->plan.program[s->out->launch[launch].program]);
    *rate = dtype ? s->opt->product_rate : 0;
    if (!dtype || *rate) return CODA_OK;
    for (int i = 0; i < launch; i++)
        if (multiplied(&p->plan.program[s->out->launch[i].program]) == dtype)
            return *rate = s->out->launch[i].product_rate, CODA_OK;
    return rate_of_products(&s->timer, dtype, rate);
}

static coda_status find_floors(struct session *s)
{
    coda_profile_total *all = &s->out->total;
    all->copy_rate = s->opt->copy_rate;
    coda_status status = all->copy_rate ? CODA_OK : rate_of_copies(&s->timer, &all->copy_rate);
    for (int i = 0; i < all->launches && !status; i++) {
        coda_profile_launch *l = &s->out->launch[i];
        status = product_rate(s, i, &l->product_rate);
        double moved = all->copy_rate ? (double)l->bytes / all->copy_rate : 0;
        double multiplied = l->product_rate ? l->flops / l->product_rate : 0;
        l->floor_ms = 1e3 * MAX(moved, multiplied);
        all->floor_ms += l->floor_ms;
    }
    return status;
}

/* ---- Times ---- */

static int by_value(const void *a, const void *b)
{
    double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

/* Sorts them. */
static double median_ms(double *us, int n, double *least)
{
    qsort(us, (size_t)n, sizeof *us, by_value);
    *least = 1e-3 * us[0];
    return 1e-3 * (n % 2 ? us[n / 2] : (us[n / 2 - 1] + us[n / 2]) / 2);
}

/* How long a round takes, once what is slow the first time has been. */
static coda_status warm_up(struct session *s, double *us)
{
    coda_status status = CODA_OK;
    for (int i = 0; i < WARM && !status; i++) {
        double began = profile_clock(), ignored;
        status = timer_each(&s->timer, s->once);
        if (!status) status = timer_whole(&s->timer, &ignored);
        *us = profile_clock() - began;
    }
    return status;
}

/* Ranks meet in each of them: those that went by their own clocks would wait for one that is done. */
static int rounds_of(const struct session *s, double us)
{
    if (s->opt->rounds) return s->opt->rounds;
    if (s->run->plan->groups) return RANKS_ROUNDS;
    return (int)MAX(LEAST_ROUNDS, MIN(MOST_ROUNDS, BUDGET_US / MAX(us, 1)));
}

static coda_status choose_rounds(struct session *s)
{
    double us = 0;
    s->once = calloc((size_t)s->out->total.launches + 1, sizeof *s->once);
    if (!s->once) return fail(CODA_E_MEMORY, "out of memory for %d times", s->out->total.launches);
    coda_status status = warm_up(s, &us);
    if (status) return status;
    s->rounds = rounds_of(s, us);
    s->each = calloc((size_t)s->rounds, (size_t)(s->out->total.launches + 1) * sizeof *s->each);
    s->whole = calloc((size_t)s->rounds, sizeof *s->whole);
    return s->each && s->whole ? CODA_OK
                               : fail(CODA_E_MEMORY, "out of memory for %d rounds of %d launches", s->rounds,
                                      s->out->total.launches);
}

static coda_status time_rounds(struct session *s)
{
    coda_status status = CODA_OK;
    for (int r = 0; r < s->rounds && !status; r++) {
        status = timer_each(&s->timer, s->once);
        if (!status) status = timer_whole(&s->timer, &s->whole[r]);
        for (int i = 0; i < s->out->total.launches; i++) s->each[i * s->rounds + r] = s->once[i];
    }
    return status;
}

static void add_up(struct session *s)
{
    coda_profile_total *all = &s->out->total;
    all->rounds = s->rounds;
    for (int i = 0; i < all->launches; i++) {
        coda_profile_launch *l = &s->out->launch[i];
        l->ms = median_ms(&s->each[(size_t)i * (size_t)s->rounds], s->rounds, &l->least_ms);
        all->sum_ms += l->ms;
    }
    all->run_ms = median_ms(s->whole, s->rounds, &all->run_least_ms);
}

/* ---- A profile ---- */

static coda_status measure(struct session *s)
{
    coda_status status = timer_open(&s->timer, s->run, s->opt->threads);
    if (!status) status = choose_rounds(s);
    if (!status) status = time_rounds(s);
    if (!status) add_up(s);
    return status ? status : find_floors(s);
}

static coda_status enter(const struct coda_plan *p)
{
    char err[JIT_ERROR_SIZE];
    if (!p->runnable) return fail(CODA_E_INVALID, "profile: the plan was compiled for no device");
    coda_status status = p->device == CODA_DEVICE_GPU ? jit_device_enter(&p->gpu, err) : CODA_OK;
    return status ? fail(status, "profile: %s", err) : CODA_OK;
}

coda_status profile_plan(coda_profile **out, const struct profiled *run, const coda_profile_options *opt)
{
    struct session s = {.run = run, .opt = opt};
    coda_status status = enter(run->plan);
    if (status) return status;
    s.out = calloc(1, sizeof *s.out);
    status = s.out ? describe_all(s.out, run->plan) : fail(CODA_E_MEMORY, "out of memory for a profile");
    if (!status) status = measure(&s);
    timer_close(&s.timer);
    if (run->plan->device == CODA_DEVICE_GPU) jit_device_leave();
    free(s.each);
    free(s.whole);
    free(s.once);
    if (status) profile_free(s.out);
    else *out = s.out;
    return status;
}

void profile_free(coda_profile *f)
{
    if (!f) return;
    arena_free(&f->arena);
    free(f);
}
