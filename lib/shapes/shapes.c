/*
 * shapes.c -- a plan of a graph with symbols: one exact plan for each binding that was met.
 *
 * A run looks its binding up under one short lock. The first run of a binding has it planned, and compiles
 * what kernels are not loaded; others that want the same binding wait for it. Where the policy is not to wait
 * it gets a plan of kernels that serve any shape, and a thread in the background makes the best one, which
 * takes its place when no run uses it. The plans used last are kept; kernels stay loaded (known.h).
 */
#include "shapes.h"

#include "background.h"
#include "family.h"
#include "known.h"

#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum { CHAINS = 256, SHAPES_USUAL = 64, MOST_THREADS = 4 };

struct shape {
    struct shape *chain, *newer, *older; /* the chain goes on among those that are gone */
    coda_plan *plan;                     /* NULL while its maker is at work */
    coda_plan *better;                   /* takes its place once nobody uses it; or NULL */
    bool best;                           /* `plan` is: no other would be faster */
    bool asked;                          /* the background was asked for the best one */
    pid_t maker;                         /* a process that fork() made has none of its parent's threads */
    int users;
    int64_t dims[];
};

struct shapes {
    struct family family;
    int most;             /* plans that are kept */
    int threads;          /* that compile in the background */
    pid_t owner;          /* a child of fork() has no background */
    pthread_mutex_t lock; /* of all that follows */
    pthread_cond_t made;  /* or failed to be */
    struct background background;
    bool sealed;
    struct shape *chain[CHAINS], *newest, *oldest;
    struct shape *gone; /* to be freed without the lock */
    int kept;
    int64_t runs, runs_base, planned, dropped, improved, failed;
};

/* ---- The list, by use, and the chains, by binding; under the lock ---- */

static size_t dims_bytes(const struct shapes *s)
{
    return sizeof(int64_t) * (size_t)s->family.graph->dims->symbols;
}

static struct shape **chain_of(struct shapes *s, const int64_t *dims)
{
    uint64_t h = 0;
    for (int i = 0; i < s->family.graph->dims->symbols; i++)
        h = (h ^ (uint64_t)dims[i]) * 0x9e3779b97f4a7c15u, h ^= h >> 29;
    return &s->chain[h % CHAINS];
}

static struct shape *find(struct shapes *s, const int64_t *dims)
{
    struct shape *at = *chain_of(s, dims);
    while (at && memcmp(at->dims, dims, dims_bytes(s)) != 0) at = at->chain;
    return at;
}

static void unlink_use(struct shapes *s, struct shape *e)
{
    *(e->newer ? &e->newer->older : &s->newest) = e->older;
    *(e->older ? &e->older->newer : &s->oldest) = e->newer;
}

static void link_newest(struct shapes *s, struct shape *e)
{
    e->newer = NULL;
    e->older = s->newest;
    *(s->newest ? &s->newest->newer : &s->oldest) = e;
    s->newest = e;
}

static struct shape *add(struct shapes *s, const int64_t *dims)
{
    struct shape *e = calloc(1, sizeof *e + dims_bytes(s));
    if (!e) return NULL;
    memcpy(e->dims, dims, dims_bytes(s));
    e->maker = getpid();
    e->users = 1;
    struct shape **chain = chain_of(s, dims);
    e->chain = *chain;
    *chain = e;
    link_newest(s, e);
    s->kept++;
    return e;
}

static void drop(struct shapes *s, struct shape *e)
{
    struct shape **at = chain_of(s, e->dims);
    while (*at != e) at = &(*at)->chain;
    *at = e->chain;
    unlink_use(s, e);
    s->kept--;
    e->chain = s->gone;
    s->gone = e;
}

/* Unlocks, and frees what was dropped: to unload a kernel may take long. */
static void unlock(struct shapes *s)
{
    struct shape *gone = s->gone;
    s->gone = NULL;
    pthread_mutex_unlock(&s->lock);
    for (struct shape *e = gone; e; e = gone) {
        gone = e->chain;
        executable_free(e->plan);
        executable_free(e->better);
        free(e);
    }
}

/* The better plan takes its place; nobody uses the other one. */
static void adopt(struct shapes *s, struct shape *e)
{
    struct shape *old = calloc(1, sizeof *old);
    if (!old) return; /* later */
    old->plan = e->plan;
    old->chain = s->gone;
    s->gone = old;
    e->plan = e->better;
    e->better = NULL;
    e->best = true;
}

/* The plans used longest ago go, but for those that are in use. */
static void drop_surplus(struct shapes *s)
{
    for (struct shape *e = s->oldest, *next; e && s->kept > s->most; e = next) {
        next = e->newer;
        if (e->users || !e->plan) continue;
        drop(s, e);
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

/* The plan that this call gets, and whether it is the best one: of what is loaded, if that will do. */
static coda_status make(coda_plan **out, bool *best, const coda_plan *whole, const struct taker *by,
                        const int64_t *dims)
{
    struct shapes *s = whole->shapes;
    const char *why = why_not_wait(s, by);
    bool base = has_base(s) && (by->runs || s->sealed), never = s->family.opt.policy == CODA_POLICY_NEVER;
    struct wish w = {.call = by->call, .dims = dims, .loaded = base || why};
    coda_status status = CODA_OK;
    *best = true;
    if (!base || !never) status = family_plan(&s->family, out, whole, &w);
    if (status || *out) return status;
    *best = false;
    w.base = true;
    if (base) status = family_plan(&s->family, out, whole, &w);
    if (status || *out) return status;
    if (why) return refuse(s, by, dims, why);
    w.loaded = false;
    return family_plan(&s->family, out, whole, &w);
}

/* A shape that runs with kernels that serve any gets its own. */
static coda_status improve(const coda_plan *whole, const struct wish *w)
{
    struct shapes *s = whole->shapes;
    coda_plan *made = NULL;
    coda_status status = family_plan(&s->family, &made, whole, w);
    pthread_mutex_lock(&s->lock);
    struct shape *e = find(s, w->dims);
    s->failed += status != CODA_OK;
    bool wanted = made && e && e->plan && !e->best && !e->better;
    if (wanted) e->better = made, s->improved++;
    if (wanted && !e->users) adopt(s, e);
    unlock(s);
    if (!wanted && made) executable_free(made); /* its kernels are known now */
    return status;
}

static void improve_aside(void *owner, const int64_t *dims)
{
    const coda_plan *whole = owner;
    const struct wish w = {.call = "background", .dims = dims, .threads = whole->shapes->threads};
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

/* Waits for, or makes, the plan of e, which this call uses already. The lock is held, but not while it is
 * made. */
static coda_status settle(const coda_plan *p, struct shape *e, const struct taker *by)
{
    struct shapes *s = p->shapes;
    coda_plan *made = NULL;
    bool best;
    pthread_mutex_unlock(&s->lock);
    coda_status status = make(&made, &best, p, by, e->dims);
    pthread_mutex_lock(&s->lock);
    e->plan = made;
    e->best = best;
    pthread_cond_broadcast(&s->made);
    if (made) {
        s->planned++;
        drop_surplus(s);
    } else if (!--e->users) drop(s, e);
    else e->maker = 0; /* one of those that wait tries again, and gets a message of its own */
    return status;
}

static bool is_abandoned(const struct shape *e) { return e->maker != getpid(); }

/* The binding's place, with one user more; under the lock. */
static coda_status place(struct shape **out, struct shapes *s, const struct taker *by, const int64_t *dims)
{
    struct shape *e = *out = find(s, dims);
    if (e && e->better && !e->users) adopt(s, e);
    if (e && e->plan) {
        e->users++;
        if (e != s->newest) unlink_use(s, e), link_newest(s, e);
        return CODA_OK;
    }
    if (e) e->users++;
    else if (!(*out = add(s, dims))) return fail(CODA_E_MEMORY, "%s: out of memory for a shape", by->call);
    return CODA_OK;
}

coda_status shapes_take(struct shape **out, const coda_plan *p, const struct taker *by, const int64_t *dims)
{
    struct shapes *s = p->shapes;
    pthread_mutex_lock(&s->lock);
    bool found = find(s, dims);
    coda_status status = place(out, s, by, dims);
    s->runs += by->runs && !status;
    struct shape *e = *out;
    while (!status && found && !e->plan && !is_abandoned(e)) pthread_cond_wait(&s->made, &s->lock);
    if (!status && !e->plan) {
        e->maker = getpid();
        status = settle(p, e, by);
    }
    if (!status && by->runs) {
        s->runs_base += !e->best;
        ask_for_better(s, e, by);
    }
    bool waits = !status && !by->runs && !e->best && !e->better && !s->sealed;
    unlock(s);
    if (!waits || s->family.opt.policy == CODA_POLICY_NEVER) return status;
    const struct wish w = {.call = by->call, .dims = dims};
    status = improve(p, &w);
    if (status) shapes_give(p, e);
    return status;
}

const coda_plan *shape_plan(const struct shape *e) { return e->plan; }

void shapes_give(const coda_plan *p, struct shape *e)
{
    struct shapes *s = p->shapes;
    pthread_mutex_lock(&s->lock);
    if (!--e->users && e->better) adopt(s, e);
    if (s->kept > s->most) drop_surplus(s);
    unlock(s);
}

bool shapes_have(const coda_plan *p, const int64_t *dims)
{
    struct shapes *s = p->shapes;
    pthread_mutex_lock(&s->lock);
    const struct shape *e = find(s, dims);
    bool have = e && e->plan && (e->best || e->better);
    pthread_mutex_unlock(&s->lock);
    return have;
}

void shapes_stats(const coda_plan *p, coda_shape_stats *out)
{
    struct shapes *s = p->shapes;
    pthread_mutex_lock(&s->lock);
    out->runs = s->runs;
    out->planned = s->planned;
    out->dropped = s->dropped;
    out->kept = s->kept;
    out->runs_base = s->runs_base;
    out->improved = s->improved;
    out->failed = s->failed;
    out->pending = s->background.waiting;
    out->kernels = s->family.known ? known_count(s->family.known) : 0;
    pthread_mutex_unlock(&s->lock);
}

/* ---- The whole ---- */

const graph *shapes_graph(const struct shapes *s) { return s->family.graph; }

void shapes_seal(const coda_plan *p)
{
    struct shapes *s = p->shapes;
    pthread_mutex_lock(&s->lock);
    s->sealed = true;
    background_drop(&s->background);
    pthread_mutex_unlock(&s->lock);
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
        p->place[i].at = place_of(NULL, a.kind, dtype_size(a.dtype), a.rank, a.dims, a.strides).at;
    }
    graph_free(small);
    return CODA_OK;
}

static coda_status keep_text(coda_plan *p, const graph *g)
{
    struct text t = {0};
    graph_print(g, &t);
    p->text[CODA_TEXT_GRAPH] = t.failed ? NULL : arena_string(&p->arena, text_str(&t));
    text_free(&t);
    return p->text[CODA_TEXT_GRAPH] ? CODA_OK : fail(CODA_E_MEMORY, "out of memory for the plan's text");
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
    s->owner = getpid();
    s->most = opt->shapes ? opt->shapes : SHAPES_USUAL;
    pthread_mutex_init(&s->lock, NULL);
    pthread_cond_init(&s->made, NULL);
    coda_status status = family_open(&s->family, g, opt);
    if (!status) status = count_threads(s);
    if (!status) status = family_whole(&s->family, &p, has_base(s) && opt->device == CODA_DEVICE_GPU);
    if (!status) {
        p->shapes = s;
        background_open(&s->background, &s->lock, g->dims->symbols, improve_aside, p);
        status = keep_text(p, g);
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
    if (s->owner == getpid()) {
        if (s->background.lock) background_close(&s->background);
    } else pthread_mutex_init(&s->lock, NULL); /* of the parent's threads one may have had it at the fork */
    pthread_mutex_lock(&s->lock);
    while (s->newest) drop(s, s->newest);
    unlock(s);
    family_close(&s->family);
    pthread_cond_destroy(&s->made);
    pthread_mutex_destroy(&s->lock);
    free(s);
}
