/* ranks.c -- see ranks.h. */
#include "ranks.h"

#include <errno.h>
#include <pthread.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

/* What the others know of a rank. */
struct seat {
    struct offer offer;
    uint64_t meetings; /* barriers that it has come to */
    bool left;
};

struct company {
    pthread_mutex_t lock;
    pthread_cond_t changed;
    int ranks, handles, timeout_ms;
    int here;           /* ranks that have come to the next barrier */
    uint64_t barriers;  /* behind which all ranks are: two for each exchange */
    coda_status status; /* of all exchanges from now on */
    char why[256];
    const void **x; /* what each rank brought */
    struct seat seat[];
};

struct coda_group {
    const struct coda_group *self; /* only a handle that is alive points to itself */
    struct company *company;
    int rank;
};

/* ---- Handles ---- */

static void company_free(struct company *c)
{
    if (!c) return;
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
        *out[r] = (struct coda_group){out[r], c, r};
        c->handles++;
    }
    if (c && c->handles == ranks) return CODA_OK;
    for (int r = 0; c && r < c->handles; r++) free(out[r]);
    for (int r = 0; r < ranks; r++) out[r] = NULL;
    company_free(c);
    return fail(CODA_E_MEMORY, "out of memory for a group of %d ranks", ranks);
}

void ranks_free(coda_group *g)
{
    if (!g) return;
    struct company *c = g->company;
    pthread_mutex_lock(&c->lock);
    c->seat[g->rank].left = true;
    bool last = !--c->handles;
    pthread_cond_broadcast(&c->changed);
    pthread_mutex_unlock(&c->lock);
    if (last) company_free(c);
    g->self = NULL;
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

/* ---- The end of a group ---- */

/* The first reason stays. The lock is held. */
static void PRINTF(3, 4) end(struct company *c, coda_status status, const char *format, ...)
{
    if (c->status) return;
    va_list args;
    va_start(args, format);
    format_print(c->why, sizeof c->why, format, args);
    va_end(args);
    c->status = status;
    pthread_cond_broadcast(&c->changed);
}

void ranks_give_up(coda_group *g, const char *why)
{
    struct company *c = g->company;
    pthread_mutex_lock(&c->lock);
    end(c, CODA_E_DEVICE, "rank %d gave up: %.200s", g->rank, why);
    pthread_mutex_unlock(&c->lock);
}

static coda_status told(const struct company *c)
{
    return c->status ? fail(c->status, "%s", c->why) : CODA_OK;
}

coda_status ranks_status(const coda_group *g)
{
    struct company *c = g->company;
    pthread_mutex_lock(&c->lock);
    coda_status status = told(c);
    pthread_mutex_unlock(&c->lock);
    return status;
}

/* ---- Barriers: the lock is held ---- */

/* The exchange that ranks are at, from 1 on. */
static unsigned long long exchange(const struct company *c) { return c->barriers / 2 + 1; }

static struct timespec deadline(int milliseconds)
{
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    t.tv_sec += milliseconds / 1000;
    t.tv_nsec += milliseconds % 1000 * 1000000L;
    if (t.tv_nsec >= 1000000000L) t.tv_sec++, t.tv_nsec -= 1000000000L;
    return t;
}

/* The first rank that has not come yet: has it left, or is it late? */
static void end_without(struct company *c, const struct offer *mine, bool late)
{
    int r = 0;
    while (r < c->ranks - 1 && (c->seat[r].meetings > c->barriers || (!late && !c->seat[r].left))) r++;
    if (late)
        end(c, CODA_E_DEVICE, "rank %d missed exchange %llu (%s) for %d ms", r, exchange(c), mine->operation,
            c->timeout_ms);
    else
        end(c, CODA_E_DEVICE, "rank %d left the group before exchange %llu (%s)", r, exchange(c),
            mine->operation);
}

static bool somebody_left(const struct company *c)
{
    bool left = false;
    for (int r = 0; r < c->ranks; r++) left = left || (c->seat[r].left && c->seat[r].meetings <= c->barriers);
    return left;
}

/* The same operation, of the same elements. */
static bool agree(const struct offer *a, const struct offer *b)
{
    return !strcmp(a->operation, b->operation) && a->dtype == b->dtype && a->outer == b->outer &&
           a->extent == b->extent && a->inner == b->inner;
}

static void compare_offers(struct company *c)
{
    const struct offer *a = &c->seat[0].offer;
    for (int r = 1; r < c->ranks; r++) {
        const struct offer *b = &c->seat[r].offer;
        if (agree(a, b)) continue;
        end(c, CODA_E_INVALID,
            "exchange %llu: rank 0 has %s of %s [%lld,%lld,%lld], rank %d has %s of %s [%lld,%lld,%lld]",
            exchange(c), a->operation, a->dtype ? dtype_name((coda_dtype)a->dtype) : "f64",
            (long long)a->outer, (long long)a->extent, (long long)a->inner, r, b->operation,
            b->dtype ? dtype_name((coda_dtype)b->dtype) : "f64", (long long)b->outer, (long long)b->extent,
            (long long)b->inner);
        return;
    }
}

static void wait_for_the_others(struct company *c, const struct offer *mine)
{
    uint64_t before = c->barriers;
    struct timespec until = deadline(c->timeout_ms);
    while (c->barriers == before && !c->status) {
        if (somebody_left(c)) end_without(c, mine, false);
        else if (!c->timeout_ms) pthread_cond_wait(&c->changed, &c->lock);
        else if (pthread_cond_timedwait(&c->changed, &c->lock, &until) == ETIMEDOUT && c->barriers == before)
            end_without(c, mine, true);
    }
}

/* A rank that is the last one lets all go on. */
static void barrier(coda_group *g, bool compares)
{
    struct company *c = g->company;
    c->seat[g->rank].meetings = c->barriers + 1;
    if (++c->here < c->ranks) {
        wait_for_the_others(c, &c->seat[g->rank].offer);
        return;
    }
    if (compares) compare_offers(c);
    c->here = 0;
    c->barriers++;
    pthread_cond_broadcast(&c->changed);
}

coda_status ranks_meet(coda_group *g, const struct offer *mine, const void *const **x)
{
    struct company *c = g->company;
    pthread_mutex_lock(&c->lock);
    c->seat[g->rank].offer = *mine;
    c->x[g->rank] = mine->x;
    if (!c->status) barrier(g, true);
    coda_status status = told(c);
    *x = c->x;
    pthread_mutex_unlock(&c->lock);
    return status;
}

coda_status ranks_part(coda_group *g)
{
    struct company *c = g->company;
    pthread_mutex_lock(&c->lock);
    if (!c->status) barrier(g, false);
    coda_status status = told(c);
    pthread_mutex_unlock(&c->lock);
    return status;
}
