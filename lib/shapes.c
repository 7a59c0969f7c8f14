/*
 * shapes.c -- a plan of a graph with symbols: one exact plan for each binding that was met.
 *
 * The graph is rewritten once, with its symbols, but for values that make extents equal which may differ:
 * there more rules apply. A run looks its binding up under one short lock. The first run of a binding binds
 * the rewritten graph, plans it and compiles what kernels the cache does not have; others that want the same
 * binding wait for it. The plans used last are kept. One that goes gives its kernels to the list of those
 * held, where they stay loaded until the whole plan is freed: a launch, or a captured graph, may still use
 * them. Equal kernels are held once, so that what is held is bounded by the number of distinct kernels, not
 * by that of shapes.
 */
#include "shapes.h"

#include "pipeline.h"
#include "variants.h"

#include <inttypes.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum {
    CHAINS = 256,
    CORNERS = 16, /* 2 << MOST_SMALL */
    SHAPES_USUAL = 64,
    MOST_SMALL = 3 /* symbols of which all combinations of small and large are tried */
};

struct shape {
    struct shape *chain, *newer, *older; /* the chain goes on among those that are gone */
    coda_plan *plan;                     /* NULL while its maker is at work */
    pid_t maker;                         /* a process that fork() made has none of its parent's threads */
    int users;
    int64_t dims[];
};

struct shapes {
    graph *graph;     /* as it was given */
    graph *rewritten; /* NULL: only with its symbols bound it can be */
    struct variants *variants;
    coda_plan *corner[CORNERS]; /* plans of shapes that are large, as far as their kind goes */
    int corners;
    const struct plan *larger[CORNERS + 1]; /* theirs, and that of the largest shape */
    int largers;
    coda_compile_options opt; /* of each exact plan */
    int most;                 /* plans that are kept */
    pthread_mutex_t lock;     /* of all that follows */
    pthread_cond_t made;      /* or failed to be */
    struct shape *chain[CHAINS], *newest, *oldest;
    struct shape *gone; /* to be freed without the lock */
    int kept;
    struct jit_kernel **held;
    int helds, room;
    int64_t runs, planned, dropped;
};

/* ---- The list, by use, and the chains, by binding; under the lock ---- */

static size_t dims_bytes(const struct shapes *s) { return sizeof(int64_t) * (size_t)s->graph->dims->symbols; }

static struct shape **chain_of(struct shapes *s, const int64_t *dims)
{
    uint64_t h = 0;
    for (int i = 0; i < s->graph->dims->symbols; i++)
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
        free(e);
    }
}

/* ---- Kernels outlive the plan that loaded them ---- */

static bool is_held(const struct shapes *s, const struct jit_kernel *k)
{
    for (int i = 0; i < s->helds; i++)
        if (s->held[i] == k) return true;
    return false;
}

static bool make_room(struct shapes *s, int more)
{
    if (s->helds + more <= s->room) return true;
    int room = MAX(2 * s->room, s->helds + more);
    struct jit_kernel **held = realloc(s->held, sizeof *held * (size_t)room);
    if (!held) return false;
    s->held = held;
    s->room = room;
    return true;
}

static bool hold_kernels(struct shapes *s, coda_plan *p)
{
    if (!make_room(s, p->kernels)) return false;
    for (int i = 0; i < p->kernels; i++) {
        struct jit_kernel **k = &p->kernel[i].kernel;
        if (!*k || is_held(s, *k)) continue;
        s->held[s->helds++] = *k;
        *k = NULL;
    }
    return true;
}

/* The plans used longest ago go, but for those that are in use. If memory runs out they stay. */
static void drop_surplus(struct shapes *s)
{
    for (struct shape *e = s->oldest, *next; e && s->kept > s->most; e = next) {
        next = e->newer;
        if (e->users || !e->plan) continue;
        if (!hold_kernels(s, e->plan)) return;
        drop(s, e);
        s->dropped++;
    }
}

/* ---- One more binding ---- */

static void say_dims(const struct shapes *s, const int64_t *dims, char *out, size_t size)
{
    const struct dims *t = s->graph->dims;
    struct text text = {0};
    for (int i = 0; i < t->symbols; i++)
        text_printf(&text, "%s%s=%" PRId64, i ? ", " : "", t->symbol[i].name, dims[i]);
    snprintf(out, size, "%s", text_str(&text));
    text_free(&text);
}

/* May this call make a plan? */
static coda_status check_making(const struct shapes *s, const struct taker *by, const int64_t *dims)
{
    char shape[200];
    const char *why = NULL;
    if (!by->runs) return CODA_OK;
    if (s->opt.policy == CODA_POLICY_ERROR) why = "the policy is CODA_POLICY_ERROR";
    else if (s->opt.device == CODA_DEVICE_GPU && jit_is_captured(by->stream))
        why = "the stream is being captured";
    if (!why) return CODA_OK;
    say_dims(s, dims, shape, sizeof shape);
    return fail(CODA_E_UNSUPPORTED, "%s: %s has no plan yet, and %s: coda_warm makes it", by->call, shape,
                why);
}

/* What callers were told of the plan as a whole holds for each shape. */
static coda_status check_promises(const coda_plan *whole, const coda_plan *p, const struct taker *by,
                                  const int64_t *dims)
{
    char shape[200];
    say_dims(whole->shapes, dims, shape, sizeof shape);
    if (p->plan.workspace > whole->plan.workspace)
        return fail(CODA_E_UNSUPPORTED,
                    "%s: %s wants a workspace of %" PRId64 " bytes; the largest dims want %" PRId64, by->call,
                    shape, p->plan.workspace, whole->plan.workspace);
    if (p->plan.prepared_id != whole->plan.prepared_id || p->plan.prepared != whole->plan.prepared)
        return fail(CODA_E_UNSUPPORTED, "%s: %s folds other weights than the largest dims do", by->call,
                    shape);
    return CODA_OK;
}

/* The exact plan of a binding. */
static coda_status bind_and_compile(coda_plan **out, const coda_plan *whole, const char *call,
                                    const int64_t *dims, const coda_compile_options *opt)
{
    const struct shapes *s = whole->shapes;
    bool apart = s->rewritten && graph_binds_apart(s->rewritten, dims);
    graph *g = graph_bind(apart ? s->rewritten : s->graph, call, dims);
    if (!g) return fail_status();
    const struct kinship kin = {
        .elder = whole, .variants = s->variants, .larger = s->larger, .largers = s->largers};
    coda_status status = compile_graph(out, g, opt, &kin);
    graph_free(g);
    return status;
}

static coda_status make(coda_plan **out, const coda_plan *whole, const struct taker *by, const int64_t *dims)
{
    coda_status status = bind_and_compile(out, whole, by->call, dims, &whole->shapes->opt);
    if (!status) status = check_promises(whole, *out, by, dims);
    if (!status) return CODA_OK;
    executable_free(*out);
    *out = NULL;
    return status;
}

/* Waits for, or makes, the plan of e, which this call uses already. The lock is held, but not while it is
 * made. */
static coda_status settle(const coda_plan *p, struct shape *e, const struct taker *by)
{
    struct shapes *s = p->shapes;
    coda_plan *made = NULL;
    pthread_mutex_unlock(&s->lock);
    coda_status status = make(&made, p, by, e->dims);
    pthread_mutex_lock(&s->lock);
    e->plan = made;
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
    if (e && e->plan) {
        e->users++;
        if (e != s->newest) unlink_use(s, e), link_newest(s, e);
        return CODA_OK;
    }
    coda_status status = check_making(s, by, dims);
    if (status) return status;
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
    unlock(s);
    return status;
}

const coda_plan *shape_plan(const struct shape *e) { return e->plan; }

void shapes_give(const coda_plan *p, struct shape *e)
{
    struct shapes *s = p->shapes;
    pthread_mutex_lock(&s->lock);
    e->users--;
    if (s->kept > s->most) drop_surplus(s);
    unlock(s);
}

bool shapes_have(const coda_plan *p, const int64_t *dims)
{
    struct shapes *s = p->shapes;
    pthread_mutex_lock(&s->lock);
    const struct shape *e = find(s, dims);
    bool have = e && e->plan;
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
    pthread_mutex_unlock(&s->lock);
}

/* ---- The whole ---- */

const graph *shapes_graph(const struct shapes *s) { return s->graph; }

static void corner(const struct dims *t, bool most, int64_t *dims)
{
    for (int i = 0; i < t->symbols; i++) dims[i] = most ? t->symbol[i].most : t->symbol[i].least;
}

/* coda_prepare takes what a run takes, of any shape: memory for the smallest must do. */
static coda_status shrink_places(coda_plan *p, const graph *g)
{
    int64_t least[MOST_SYMBOLS];
    corner(g->dims, false, least);
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

/* Values for the symbols, of which those in `small` are the least but 0, and the others the largest; or, if
 * odd, one step less. */
static void combine(const struct dims *t, unsigned small, bool odd, int64_t *dims)
{
    for (int i = 0; i < t->symbols; i++) {
        const struct symbol *s = &t->symbol[i];
        bool is_small = i < MOST_SMALL && small >> i & 1;
        int64_t value = is_small ? s->multiple : s->most - odd * s->multiple;
        dims[i] = MAX(s->least, MIN(value, s->most));
    }
}

/* Dims that are 1 let more rules apply, and odd ones want copies: such shapes have other buffers than the
 * largest one. The workspace is that of the hungriest of those that are largest among their like. */
static coda_status add_corners(coda_plan *p)
{
    struct shapes *s = p->shapes;
    coda_compile_options opt = s->opt;
    int64_t dims[MOST_SYMBOLS];
    coda_status status = CODA_OK;
    opt.flags |= CODA_PLAN_ONLY;
    s->larger[s->largers++] = &p->plan;
    for (unsigned k = 1; !status && k < 2u << MIN(s->graph->dims->symbols, MOST_SMALL); k++) {
        coda_plan *q;
        combine(s->graph->dims, k / 2, k % 2, dims);
        status = bind_and_compile(&q, p, "compile", dims, &opt);
        if (status) break;
        p->plan.workspace = MAX(p->plan.workspace, q->plan.workspace);
        s->corner[s->corners++] = q;
        s->larger[s->largers++] = &q->plan;
    }
    return status;
}

static coda_status keep_text(coda_plan *p, const graph *g)
{
    struct text t = {0};
    graph_print(g, &t);
    p->text[CODA_TEXT_GRAPH] = t.failed ? NULL : arena_string(&p->arena, text_str(&t));
    text_free(&t);
    return p->text[CODA_TEXT_GRAPH] ? CODA_OK : fail(CODA_E_MEMORY, "out of memory for the plan's text");
}

static struct shapes *shapes_new(const graph *g, const coda_compile_options *opt)
{
    struct shapes *s = calloc(1, sizeof *s);
    if (!s) return fail(CODA_E_MEMORY, "out of memory for a plan of many shapes"), NULL;
    pthread_mutex_init(&s->lock, NULL);
    pthread_cond_init(&s->made, NULL);
    s->opt = *opt;
    s->opt.flags &= ~(unsigned)(CODA_AUTOTUNE | CODA_MAX_AUTOTUNE); /* takes seconds, and the device */
    s->most = opt->shapes ? opt->shapes : SHAPES_USUAL;
    s->graph = graph_copy(g, "compile");
    s->variants = s->graph ? variants_new() : NULL;
    if (!s->variants) return shapes_free(s), NULL;
    s->rewritten = compile_rewritten(g, opt);
    return s;
}

/* The plan of the largest dims. */
static coda_status compile_whole(coda_plan **out, const struct shapes *s, const coda_compile_options *opt)
{
    const struct kinship kin = {.variants = s->variants};
    int64_t most[MOST_SYMBOLS];
    corner(s->graph->dims, true, most);
    graph *large = graph_bind(s->graph, "compile", most);
    if (!large) return fail_status();
    coda_status status = compile_graph(out, large, opt, &kin);
    graph_free(large);
    return status;
}

coda_status shapes_compile(coda_plan **out, const graph *g, const coda_compile_options *opt)
{
    struct shapes *s = shapes_new(g, opt);
    coda_plan *p = NULL;
    if (!s) return fail_status();
    coda_status status = compile_whole(&p, s, opt);
    if (status) return shapes_free(s), status;
    p->shapes = s;
    s->opt.arch = p->arch;
    status = keep_text(p, g);
    if (!status) status = shrink_places(p, g);
    if (!status) status = add_corners(p);
    if (!status) return *out = p, CODA_OK;
    shapes_free(s);
    executable_free(p);
    return status;
}

void shapes_free(struct shapes *s)
{
    if (!s) return;
    pthread_mutex_lock(&s->lock);
    while (s->newest) drop(s, s->newest);
    unlock(s);
    for (int i = 0; i < s->corners; i++) executable_free(s->corner[i]);
    for (int i = 0; i < s->helds; i++) jit_unload(s->held[i]);
    free(s->held);
    graph_free(s->graph);
    graph_free(s->rewritten);
    variants_free(s->variants);
    pthread_cond_destroy(&s->made);
    pthread_mutex_destroy(&s->lock);
    free(s);
}
