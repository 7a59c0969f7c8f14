/* ranks.c -- the handles of a group's ranks, and its end. */
#include "company.h"

#include <stdlib.h>
#include <time.h>

/* ---- Handles ---- */

static void company_free(struct company *c)
{
    if (!c) return;
    for (struct left *l = c->left, *next; l; l = next) {
        next = l->next;
        l->release(l->what);
        free(l);
    }
    pthread_cond_destroy(&c->changed);
    pthread_mutex_destroy(&c->lock);
    free(c->x);
    free(c);
}

static struct company *company_new(int ranks, int timeout_ms)
{
    struct company *c = calloc(1, sizeof *c + sizeof *c->seat * (size_t)ranks);
    pthread_condattr_t clock;
    if (!c) return NULL;
    c->ranks = ranks, c->timeout_ms = timeout_ms;
    c->x = calloc((size_t)ranks, sizeof *c->x);
    pthread_mutex_init(&c->lock, NULL);
    pthread_condattr_init(&clock);
    pthread_condattr_setclock(&clock, CLOCK_MONOTONIC);
    pthread_cond_init(&c->changed, &clock);
    pthread_condattr_destroy(&clock);
    if (c->x) return c;
    company_free(c);
    return NULL;
}

coda_status ranks_new(coda_group **out, int ranks, int timeout_ms)
{
    struct company *c = company_new(ranks, timeout_ms);
    for (int r = 0; r < ranks && c; r++) {
        if (!(out[r] = malloc(sizeof *out[r]))) break;
        *out[r] = (struct coda_group){.self = out[r], .company = c, .rank = r};
        c->handles++;
    }
    if (c && c->handles == ranks) return CODA_OK;
    for (int r = 0; c && r < c->handles; r++) free(out[r]);
    for (int r = 0; r < ranks; r++) out[r] = NULL;
    company_free(c);
    return fail(CODA_E_MEMORY, "out of memory for a group of %d ranks", ranks);
}

coda_status ranks_new_elsewhere(coda_group **out, int rank, int ranks, int timeout_ms,
                                const struct carrier *carrier, void *own)
{
    struct company *c = company_new(ranks, timeout_ms);
    coda_group *g = c ? malloc(sizeof *g) : NULL;
    if (!g) company_free(c);
    if (!g) return fail(CODA_E_MEMORY, "out of memory for a group of %d ranks", ranks);
    *g = (struct coda_group){.self = g, .company = c, .rank = rank};
    c->handles = 1, c->elsewhere = true;
    ranks_carry(g, carrier, own);
    return *out = g, CODA_OK;
}

void ranks_free(coda_group *g)
{
    if (!g) return;
    struct company *c = g->company;
    struct seat *s = &c->seat[g->rank];
    pthread_mutex_lock(&c->lock);
    void *own = s->own;
    s->left = true, s->own = NULL;
    bool last = !--c->handles;
    pthread_cond_broadcast(&c->changed);
    pthread_mutex_unlock(&c->lock);
    if (own) s->carrier->free(own);
    if (last) company_free(c);
    g->self = NULL;
    free(g->agreed);
    free(g);
}

coda_status ranks_check(const coda_group *g, const char *name, int64_t ranks)
{
    if (!g || g->self != g) return fail(CODA_E_INVALID, "%s: its argument is no coda_group", name);
    if (ranks < 0 || g->company->ranks == ranks) return CODA_OK;
    return fail(CODA_E_INVALID, "%s: its coda_group has %d ranks, the graph %lld", name, g->company->ranks,
                (long long)ranks);
}

int ranks_rank(const coda_group *g) { return g->rank; }
int ranks_count(const coda_group *g) { return g->company->ranks; }
int ranks_timeout(const coda_group *g) { return g->company->timeout_ms; }
bool ranks_are_elsewhere(const coda_group *g) { return g->company->elsewhere; }

void ranks_carry(coda_group *g, const struct carrier *carrier, void *own)
{
    struct company *c = g->company;
    pthread_mutex_lock(&c->lock);
    c->seat[g->rank].carrier = carrier;
    c->seat[g->rank].own = own;
    if (c->aborted) carrier->abort(own);
    pthread_mutex_unlock(&c->lock);
}

bool ranks_leave_behind(coda_group *g, void (*release)(void *), void *what)
{
    struct company *c = g->company;
    struct left *l = malloc(sizeof *l);
    if (!l) return false;
    pthread_mutex_lock(&c->lock);
    *l = (struct left){c->left, release, what};
    c->left = l;
    pthread_mutex_unlock(&c->lock);
    return true;
}

/* Its own rank alone sets it. */
void *ranks_carried(const coda_group *g) { return g->company->seat[g->rank].own; }

/* ---- The end of a group ---- */

void company_end(struct company *c, coda_status status, const char *format, ...)
{
    if (c->status) return;
    va_list args;
    va_start(args, format);
    format_print(c->why, sizeof c->why, format, args);
    va_end(args);
    c->status = status;
    pthread_cond_broadcast(&c->changed);
}

/* What carriers have under way ends, too, once the group has. The lock is held. */
static void abort_carriers(struct company *c)
{
    if (!c->status || c->aborted) return;
    c->aborted = true;
    for (int r = 0; r < c->ranks; r++)
        if (c->seat[r].own) c->seat[r].carrier->abort(c->seat[r].own);
}

coda_status company_told(struct company *c)
{
    abort_carriers(c);
    return c->status ? fail(c->status, "%s", c->why) : CODA_OK;
}

void ranks_give_up(coda_group *g, const char *why)
{
    struct company *c = g->company;
    pthread_mutex_lock(&c->lock);
    company_end(c, CODA_E_DEVICE, "rank %d gave up: %.200s", g->rank, why);
    abort_carriers(c);
    pthread_mutex_unlock(&c->lock);
}

void ranks_end(coda_group *g, coda_status status, const char *why)
{
    struct company *c = g->company;
    pthread_mutex_lock(&c->lock);
    company_end(c, status, "%s", why);
    abort_carriers(c);
    pthread_mutex_unlock(&c->lock);
}

static void ask_carrier(const coda_group *g)
{
    struct company *c = g->company;
    const struct seat *s = &c->seat[g->rank];
    struct failure why;
    if (c->status || !s->own || !s->carrier->status(s->own, c->timeout_ms)) return;
    fail_save(&why);
    company_end(c, why.status, "rank %d: %.200s", g->rank, why.message);
}

coda_status ranks_status(const coda_group *g)
{
    struct company *c = g->company;
    pthread_mutex_lock(&c->lock);
    ask_carrier(g);
    coda_status status = company_told(c);
    pthread_mutex_unlock(&c->lock);
    return status;
}
