/*
 * shapes.c -- a plan of a graph with symbols: one exact plan for each binding that was met.
 *
 * A run looks its binding up under one short lock. The first run of a binding has it planned, and compiles
 * what kernels are not loaded; others that want the same binding wait for it. Where the policy is not to wait
 * it gets a plan of kernels that serve any shape, and a thread in the background makes the best one. That one
 * takes its place at once; what runs with the other keeps it until the run ends. The plans used last are
 * kept; kernels stay loaded (kernel_table.h).
 */
#include "shapes.h"

#include "background.h"
#include "family.h"
#include "forks.h"
#include "gather.h"
#include "kernel_table.h"
#include "schedule.h"
#include "shape_list.h"
#include "variants.h"

#include <stdlib.h>

enum { SHAPES_USUAL = 64, MOST_THREADS = 4 };

struct shapes {
    struct family family;
    int most;             /* plans that are kept */
    int threads;          /* that compile in the background */
    struct forks forks;   /* so that a child of fork() finds all this whole, and the lock free */
    pthread_mutex_t lock; /* of all that follows */
    pthread_cond_t made;  /* or failed to be; or somebody begins or ends to compile */
    int compiling;        /* threads that may; none once it is sealed */
    bool warmed;          /* best plans were made ahead of runs */
    struct background background;
    bool sealed;
    struct shape_list list;
    int64_t runs, runs_base, planned, dropped, improved, failed;
};

/* Unlocks, and frees what was dropped. */
static void unlock(struct shapes *s)
{
    struct shape *gone = shape_list_gone(&s->list);
    pthread_mutex_unlock(&s->lock);
    shape_list_free(gone);
}

/* The plans used longest ago go, but for those that are in use. */
static void drop_surplus(struct shapes *s)
{
    for (struct shape *e = s->list.oldest, *next; e && s->list.kept > s->most; e = next) {
        next = e->newer;
        if (e->users || !e->plan) continue;
        shape_drop(&s->list, e);
        s->dropped++;
    }
}

/* ---- One more binding ---- */

static bool is_captured(const struct shapes *s, const struct taker *by)
{
    return s->family.opt.device == CODA_DEVICE_GPU && jit_is_captured(by->stream);
}

/* Why this call may not wait for a compiler; NULL: it may. */
static const char *why_not_wait(const struct shapes *s, const struct taker *by)
{
    if (s->sealed) return "the plan is sealed";
    if (!by->runs) return NULL;
    if (s->family.opt.policy == CODA_POLICY_ERROR) return "the policy is CODA_POLICY_ERROR";
    return is_captured(s, by) ? "the stream is being captured" : NULL;
}

static bool has_base(const struct shapes *s)
{
    coda_policy policy = s->family.opt.policy;
    if (s->family.opt.device != CODA_DEVICE_GPU) return false;
    return policy == CODA_POLICY_BACKGROUND || policy == CODA_POLICY_NEVER;
}

static coda_status refuse(const struct shapes *s, const struct taker *by, const int64_t *dims,
                          const char *why)
{
    char shape[200];
    family_say(&s->family, dims, shape, sizeof shape);
    return fail(CODA_E_UNSUPPORTED, "%s: %s wants kernels that are not loaded, and %s: coda_warm loads them",
                by->call, shape, why);
}

/* The plan that this call gets, and whether it is the best one, if what is loaded will do; else NULL. */
static coda_status make_of_loaded(coda_plan **out, bool *best, const coda_plan *whole, const struct taker *by,
                                  const int64_t *dims, bool try_best)
{
    struct shapes *s = whole->shapes;
    struct plan_request w = {.call = by->call, .dims = dims, .loaded = true};
    coda_status status = CODA_OK;
    *best = true;
    if (try_best) status = family_plan(&s->family, out, whole, &w);
    if (status || *out || !has_base(s)) return status;
    *best = false;
    w.base = true;
    return family_plan(&s->family, out, whole, &w);
}

static coda_status make_anew(coda_plan **out, bool *best, const coda_plan *whole, const struct taker *by,
                             const int64_t *dims)
{
    struct shapes *s = whole->shapes;
    const struct plan_request w = {.call = by->call, .dims = dims, .base = has_base(s)};
    *best = !w.base;
    return family_plan(&s->family, out, whole, &w);
}

/* Whoever may compile says so, under the lock, so that the seal waits for it. */
static bool begin_to_compile(struct shapes *s)
{
    s->compiling += !s->sealed;
    return !s->sealed;
}

static void end_to_compile(struct shapes *s)
{
    s->compiling--;
    pthread_cond_broadcast(&s->made);
}

/* The best plan of a shape that runs with another, if it still is there. */
static coda_status replace(struct shapes *s, const int64_t *dims, coda_plan **better)
{
    struct shape *old = shape_find(&s->list, dims), *e;
    if (!old || !old->plan || old->best) return CODA_OK;
    if (!(e = shape_new(&s->list, dims))) return fail(CODA_E_MEMORY, "out of memory for a shape");
    e->plan = *better;
    e->best = true;
    *better = NULL;
    shape_replace(&s->list, old, e);
    s->improved++;
    return CODA_OK;
}

/* A shape that runs with kernels that serve any gets its own; none once the plan is sealed. */
static coda_status improve(const coda_plan *whole, const struct plan_request *w)
{
    struct shapes *s = whole->shapes;
    coda_plan *made = NULL;
    pthread_mutex_lock(&s->lock);
    bool may = begin_to_compile(s);
    pthread_mutex_unlock(&s->lock);
    if (!may) return CODA_OK;
    coda_status status = family_plan(&s->family, &made, whole, w);
    pthread_mutex_lock(&s->lock);
    end_to_compile(s);
    if (!status) status = replace(s, w->dims, &made);
    s->failed += status != CODA_OK;
    s->warmed |= !status;
    unlock(s);
    executable_free(made); /* NULL; or the shape is gone, and the kernels are known now */
    return status;
}

static void improve_aside(void *owner, const int64_t *dims)
{
    const coda_plan *whole = owner;
    const struct shapes *s = whole->shapes;
    const struct plan_request w = {
        .call = "background", .dims = dims, .threads = s->threads, .stops = &s->background.stops};
    jit_spare_captures();
    improve(whole, &w);
}

/* A run with kernels that serve any shape wants better ones. */
static void ask_for_better(struct shapes *s, struct shape *e, const struct taker *by)
{
    if (e->best || e->asked || s->sealed || s->family.opt.policy != CODA_POLICY_BACKGROUND) return;
    if (is_captured(s, by)) return;
    e->asked = background_add(&s->background, e->dims);
}

/* Makes a plan of kernels that are loaded, else of kernels that it compiles, or refuses. The lock is held,
 * but not while the plan is made. */
static coda_status make(coda_plan **made, bool *best, const coda_plan *p, struct shape *e,
                        const struct taker *by)
{
    struct shapes *s = p->shapes;
    bool try_best = s->family.opt.policy != CODA_POLICY_NEVER || s->warmed;
    pthread_mutex_unlock(&s->lock);
    coda_status status = make_of_loaded(made, best, p, by, e->dims, try_best);
    pthread_mutex_lock(&s->lock);
    if (status || *made) return status;
    const char *why = why_not_wait(s, by);
    if (why) return refuse(s, by, e->dims, why);
    begin_to_compile(s);
    e->compiles = true;
    pthread_cond_broadcast(&s->made); /* who may not wait for that goes */
    pthread_mutex_unlock(&s->lock);
    status = make_anew(made, best, p, by, e->dims);
    pthread_mutex_lock(&s->lock);
    end_to_compile(s);
    return status;
}

/* Makes the plan of e, which this call uses already, under the lock. */
static coda_status settle(const coda_plan *p, struct shape *e, const struct taker *by)
{
    struct shapes *s = p->shapes;
    coda_plan *made = NULL;
    e->makes = true;
    coda_status status = make(&made, &e->best, p, e, by);
    e->plan = made;
    e->makes = e->compiles = false;
    pthread_cond_broadcast(&s->made);
    if (made) {
        s->planned++;
        drop_surplus(s);
    } else if (!--e->users)
        shape_drop(&s->list, e); /* else one of those that wait tries again, for a message of its own */
    return status;
}

/* Until the plan of e is there, or nobody is at work on it; or at work for longer than this call may wait. */
static coda_status await(struct shapes *s, struct shape *e, const struct taker *by)
{
    const char *why = NULL;
    while (!e->plan && e->makes && !(e->compiles && (why = why_not_wait(s, by))))
        pthread_cond_wait(&s->made, &s->lock);
    if (e->plan || !e->makes) return CODA_OK;
    e->users--;
    return refuse(s, by, e->dims, why);
}

/* The binding's place, with one user more; under the lock. */
static coda_status place(struct shape **out, struct shapes *s, const struct taker *by, const int64_t *dims)
{
    struct shape *e = shape_find(&s->list, dims);
    if (!e && !(e = shape_add(&s->list, dims)))
        return fail(CODA_E_MEMORY, "%s: out of memory for a shape", by->call);
    if (e->plan) shape_use(&s->list, e);
    e->users++;
    *out = e;
    return CODA_OK;
}

coda_status shapes_take(struct shape **out, const coda_plan *p, const struct taker *by, const int64_t *dims)
{
    struct shapes *s = p->shapes;
    struct shape *e = NULL;
    bool waits = false;
    pthread_mutex_lock(&s->lock);
    coda_status status = place(&e, s, by, dims);
    s->runs += by->runs && !status;
    if (!status) status = await(s, e, by);
    if (!status && !e->plan) status = settle(p, e, by);
    if (!status && by->runs) {
        s->runs_base += !e->best;
        ask_for_better(s, e, by);
    }
    if (!status) *out = e, waits = !by->runs && !e->best;
    unlock(s);
    if (!waits) return status;
    const struct plan_request w = {.call = by->call, .dims = dims};
    status = improve(p, &w);
    if (status) shapes_give(p, e);
    return status;
}

const coda_plan *shape_plan(const struct shape *e) { return e->plan; }

void shapes_give(const coda_plan *p, struct shape *e)
{
    struct shapes *s = p->shapes;
    pthread_mutex_lock(&s->lock);
    if (!--e->users && e->replaced) shape_bury(&s->list, e);
    if (s->list.kept > s->most) drop_surplus(s);
    unlock(s);
}

bool shapes_have(const coda_plan *p, const int64_t *dims)
{
    struct shapes *s = p->shapes;
    pthread_mutex_lock(&s->lock);
    const struct shape *e = shape_find(&s->list, dims);
    bool have = e && e->plan && e->best;
    pthread_mutex_unlock(&s->lock);
    return have;
}

/* What the caller brings for a shape must do for each plan that a run of it may find. */
static coda_status find_workspace(int64_t *most, const coda_plan *p, const struct plan_request *w)
{
    coda_plan *dry_run = NULL;
    coda_status status = family_plan(&p->shapes->family, &dry_run, p, w);
    if (!status) *most = MAX(*most, dry_run->plan.workspace);
    executable_free(dry_run);
    return status;
}

coda_status shapes_workspace(const coda_plan *p, const int64_t *dims, int64_t *out)
{
    struct plan_request w = {.call = "plan_workspace_for", .dims = dims, .dry_run = true};
    *out = 0;
    coda_status status = find_workspace(out, p, &w);
    w.base = true;
    return status || !has_base(p->shapes) ? status : find_workspace(out, p, &w);
}

coda_status shapes_price(const coda_plan *p, const int64_t *dims, double *out)
{
    const struct plan_request w = {
        .call = "plan_buckets", .dims = dims, .dry_run = true, .approximate = true};
    coda_plan *dry_run = NULL;
    coda_status status = family_plan(&p->shapes->family, &dry_run, p, &w);
    if (!status) *out = p->device == CODA_DEVICE_CPU ? plan_work(&dry_run->plan) : plan_price(&dry_run->plan);
    executable_free(dry_run);
    return status;
}

void shapes_stats(const coda_plan *p, coda_shape_stats *out)
{
    struct shapes *s = p->shapes;
    pthread_mutex_lock(&s->lock);
    out->runs = s->runs;
    out->planned = s->planned;
    out->dropped = s->dropped;
    out->kept = s->list.kept;
    out->runs_base = s->runs_base;
    out->improved = s->improved;
    out->failed = s->failed;
    out->pending = s->background.waiting;
    out->kernels = s->family.table ? kernel_table_count(s->family.table) : 0;
    pthread_mutex_unlock(&s->lock);
}

/* ---- All shapes ---- */

/* While the caller is asked nothing is compiled, so that it may seal the plan. */
struct pause {
    const struct gathering *how;
    struct shapes *s;
    bool compiles, sealed;
};

static bool ask_caller(void *context, const coda_plan *gathered, int done)
{
    struct pause *b = context;
    pthread_mutex_lock(&b->s->lock);
    end_to_compile(b->s);
    pthread_mutex_unlock(&b->s->lock);
    bool more = b->how->go_on(b->how->context, gathered, done);
    pthread_mutex_lock(&b->s->lock);
    b->compiles = begin_to_compile(b->s);
    pthread_mutex_unlock(&b->s->lock);
    b->sealed = more && done < gathered->kernels && !b->compiles;
    return more && b->compiles;
}

coda_status shapes_gather(coda_plan **out, const coda_plan *p, const struct gathering *how)
{
    struct shapes *s = p->shapes;
    coda_policy policy = s->family.opt.policy;
    bool base = policy == CODA_POLICY_BACKGROUND || policy == CODA_POLICY_NEVER;
    struct pause b = {.how = how, .s = s};
    const struct gathering own = {how->call, how->load, how->go_on ? ask_caller : NULL, &b};
    *out = NULL;
    pthread_mutex_lock(&s->lock);
    b.compiles = begin_to_compile(s);
    pthread_mutex_unlock(&s->lock);
    if (!b.compiles) return fail(CODA_E_UNSUPPORTED, "%s: the plan is sealed", how->call);
    coda_status status = gather_texts(out, &s->family, p, base);
    if (!status) status = gather_compile(&s->family, *out, &own);
    if (!status && b.sealed) status = fail(CODA_E_UNSUPPORTED, "%s: the plan is sealed", how->call);
    pthread_mutex_lock(&s->lock);
    if (b.compiles) end_to_compile(s);
    s->warmed |= how->load && !status;
    pthread_mutex_unlock(&s->lock);
    if (!status) return CODA_OK;
    executable_free(*out);
    *out = NULL;
    return status;
}

coda_status shapes_print(const coda_plan *p, struct text *t)
{
    bool good = variants_print(p->shapes->family.variants, &p->plan, t) && !t->failed;
    return good ? CODA_OK : fail(CODA_E_MEMORY, "out of memory for a table of tiles");
}

/* ---- The whole ---- */

const graph *shapes_graph(const struct shapes *s) { return s->family.graph; }

void shapes_seal(const coda_plan *p)
{
    struct shapes *s = p->shapes;
    pthread_mutex_lock(&s->lock);
    s->sealed = true;
    background_drop(&s->background);
    while (s->compiling) pthread_cond_wait(&s->made, &s->lock);
    pthread_mutex_unlock(&s->lock);
}

/* ---- fork(): the child has none of its parent's other threads ---- */

static void before_fork(void *owner)
{
    struct shapes *s = owner;
    pthread_mutex_lock(&s->lock);
    family_hold(&s->family);
}

static void after_fork(void *owner)
{
    struct shapes *s = owner;
    family_let_go(&s->family);
    pthread_mutex_unlock(&s->lock);
}

/* Plans that others were to make are not made, and nobody uses those that are there. What had been replaced
 * and was in use is lost. */
static void after_fork_in_child(void *owner)
{
    struct shapes *s = owner;
    pthread_cond_init(&s->made, NULL); /* as others wait for it in the parent, it could not be destroyed */
    background_orphan(&s->background);
    s->compiling = 0;
    for (struct shape *e = s->list.newest, *next; e; e = next) {
        next = e->older;
        e->users = 0;
        e->makes = e->compiles = e->asked = false;
        if (!e->plan) shape_drop(&s->list, e);
    }
    after_fork(s);
}

/* coda_prepare takes what a run takes, of any shape: memory for the smallest must do. */
static coda_status shrink_places(coda_plan *p, const graph *g)
{
    int64_t least[MOST_SYMBOLS];
    for (int i = 0; i < g->dims->symbols; i++) least[i] = g->dims->symbol[i].least;
    graph *small = graph_bind(g, "compile", least);
    if (!small) return fail_status();
    for (int i = 0; i < p->args; i++) {
        coda_arg_info a = CODA_ARG_INFO_INIT;
        graph_arg(small, i, &a);
        p->place[i].at = place_of(NULL, a.kind, a.dtype, a.rank, a.dims, a.strides, false).at;
    }
    graph_free(small);
    return CODA_OK;
}

/* Half of the threads that may compile, so that runs have the others. */
static coda_status count_threads(struct shapes *s)
{
    int all = 1;
    coda_status status = s->family.opt.device == CODA_DEVICE_GPU ? kernels_threads(&all) : CODA_OK;
    s->threads = MAX(1, MIN(all / 2, MOST_THREADS));
    return status;
}

coda_status shapes_compile(coda_plan **out, const graph *g, const coda_compile_options *opt)
{
    struct shapes *s = calloc(1, sizeof *s);
    coda_plan *p = NULL;
    if (!s) return fail(CODA_E_MEMORY, "out of memory for a plan of many shapes");
    s->list.symbols = g->dims->symbols;
    s->most = opt->shapes ? opt->shapes : SHAPES_USUAL;
    pthread_mutex_init(&s->lock, NULL);
    pthread_cond_init(&s->made, NULL);
    coda_status status = family_open(&s->family, g, opt);
    if (!status) status = count_threads(s);
    if (!status) status = family_whole(&s->family, &p, has_base(s));
    if (!status) {
        p->shapes = s;
        background_open(&s->background, &s->lock, g->dims->symbols, improve_aside, p);
        s->forks = (struct forks){
            .before = before_fork, .in_parent = after_fork, .in_child = after_fork_in_child, .owner = s};
        forks_watch(&s->forks);
        status = keep_graph(p, g, CODA_TEXT_GRAPH);
    }
    if (!status) status = shrink_places(p, g);
    if (!status) return *out = p, CODA_OK;
    shapes_free(s);
    executable_free(p);
    return status;
}

void shapes_free(struct shapes *s)
{
    if (!s) return;
    if (s->forks.owner) {
        background_close(&s->background);
        forks_forget(&s->forks);
    }
    pthread_mutex_lock(&s->lock);
    while (s->list.newest) shape_drop(&s->list, s->list.newest);
    unlock(s);
    family_close(&s->family);
    pthread_cond_destroy(&s->made);
    pthread_mutex_destroy(&s->lock);
    free(s);
}
