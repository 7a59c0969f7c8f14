/*
 * shapes_take.c -- the plan of one binding: found, awaited, or made.
 *
 * A run looks its binding up under one short lock. The first run of a binding has it planned, and compiles
 * what kernels are not loaded; others that want the same binding wait for it. Where the policy is not to wait
 * it gets a plan of kernels that serve any shape, and a thread in the background makes the best one. That one
 * takes its place at once; what runs with the other keeps it until the run ends.
 */
#include "shapes.h"

#include "schedule.h"
#include "shapes_state.h"

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

/* The default stream, which a capture elsewhere in its context bars, is that of the plan's context. */
static bool is_captured(const coda_plan *p, const struct taker *by)
{
    char err[JIT_ERROR_SIZE];
    if (p->shapes->family.opt.device != CODA_DEVICE_GPU || jit_device_enter(&p->gpu, err)) return false;
    bool captured = jit_is_captured(by->stream);
    jit_device_leave();
    return captured;
}

/* Why this call may not wait for a compiler; NULL: it may. */
static const char *why_not_wait(const coda_plan *p, const struct taker *by)
{
    const struct shapes *s = p->shapes;
    if (s->sealed) return "the plan is sealed";
    if (!by->runs) return NULL;
    if (s->family.opt.policy == CODA_POLICY_ERROR) return "the policy is CODA_POLICY_ERROR";
    return is_captured(p, by) ? "the stream is being captured" : NULL;
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
    if (status || *out || !shapes_have_base(s)) return status;
    *best = false;
    w.base = true;
    return family_plan(&s->family, out, whole, &w);
}

static coda_status make_anew(coda_plan **out, bool *best, const coda_plan *whole, const struct taker *by,
                             const int64_t *dims)
{
    struct shapes *s = whole->shapes;
    const struct plan_request w = {.call = by->call, .dims = dims, .base = shapes_have_base(s)};
    *best = !w.base;
    return family_plan(&s->family, out, whole, &w);
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
    bool may = shapes_begin_to_compile(s);
    pthread_mutex_unlock(&s->lock);
    if (!may) return CODA_OK;
    coda_status status = family_plan(&s->family, &made, whole, w);
    pthread_mutex_lock(&s->lock);
    shapes_end_to_compile(s);
    if (!status) status = replace(s, w->dims, &made);
    s->failed += status != CODA_OK;
    s->warmed |= !status;
    shapes_unlock(s);
    executable_free(made); /* NULL; or the shape is gone, and the kernels are known now */
    return status;
}

void shapes_improve_aside(void *owner, const int64_t *dims)
{
    const coda_plan *whole = owner;
    const struct shapes *s = whole->shapes;
    const struct plan_request w = {
        .call = "background", .dims = dims, .threads = s->threads, .stops = &s->background.stops};
    jit_spare_captures();
    improve(whole, &w);
}

/* A run with kernels that serve any shape wants better ones. */
static void ask_for_better(const coda_plan *p, struct shape *e, const struct taker *by)
{
    struct shapes *s = p->shapes;
    if (e->best || e->asked || s->sealed || s->family.opt.policy != CODA_POLICY_BACKGROUND) return;
    if (is_captured(p, by)) return;
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
    const char *why = why_not_wait(p, by);
    if (why) return refuse(s, by, e->dims, why);
    shapes_begin_to_compile(s);
    e->compiles = true;
    pthread_cond_broadcast(&s->made); /* who may not wait for that goes */
    pthread_mutex_unlock(&s->lock);
    status = make_anew(made, best, p, by, e->dims);
    pthread_mutex_lock(&s->lock);
    shapes_end_to_compile(s);
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
static coda_status await(const coda_plan *p, struct shape *e, const struct taker *by)
{
    struct shapes *s = p->shapes;
    const char *why = NULL;
    while (!e->plan && e->makes && !(e->compiles && (why = why_not_wait(p, by))))
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
    if (!status) status = await(p, e, by);
    if (!status && !e->plan) status = settle(p, e, by);
    if (!status && by->runs) {
        s->runs_base += !e->best;
        ask_for_better(p, e, by);
    }
    if (!status) *out = e, waits = !by->runs && !e->best;
    shapes_unlock(s);
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
    shapes_unlock(s);
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
