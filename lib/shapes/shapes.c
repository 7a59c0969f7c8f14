/*
 * shapes.c -- a plan of a graph with symbols: how it begins and ends, and what it says of all its shapes. A
 * run takes the plan of its own shape from shapes_take.c.
 *
 * The plans used last are kept; kernels stay loaded (kernel_table.h).
 */
#include "shapes.h"

#include "gather.h"
#include "kernel_table.h"
#include "schedule.h"
#include "shapes_state.h"
#include "variants.h"

#include <stdlib.h>

enum { SHAPES_USUAL = 64, MOST_THREADS = 4 };

/* ---- What it says of a shape ---- */

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
    return status || !shapes_have_base(p->shapes) ? status : find_workspace(out, p, &w);
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
    shapes_end_to_compile(b->s);
    pthread_mutex_unlock(&b->s->lock);
    bool more = b->how->go_on(b->how->context, gathered, done);
    pthread_mutex_lock(&b->s->lock);
    b->compiles = shapes_begin_to_compile(b->s);
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
    b.compiles = shapes_begin_to_compile(s);
    pthread_mutex_unlock(&s->lock);
    if (!b.compiles) return fail(CODA_E_UNSUPPORTED, "%s: the plan is sealed", how->call);
    coda_status status = gather_texts(out, &s->family, p, base);
    if (!status) status = gather_compile(&s->family, *out, &own);
    if (!status && b.sealed) status = fail(CODA_E_UNSUPPORTED, "%s: the plan is sealed", how->call);
    pthread_mutex_lock(&s->lock);
    if (b.compiles) shapes_end_to_compile(s);
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
    if (!status) status = family_whole(&s->family, &p, shapes_have_base(s));
    if (!status) {
        p->shapes = s;
        background_open(&s->background, &s->lock, g->dims->symbols, shapes_improve_aside, p);
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
    shapes_unlock(s);
    family_close(&s->family);
    pthread_cond_destroy(&s->made);
    pthread_mutex_destroy(&s->lock);
    free(s);
}
