/* meet.c -- ranks meet: all of them have come, or learn who has not. */
#include "company.h"

#include <errno.h>
#include <time.h>

/* ---- Barriers: the lock is held ---- */

/* The exchange that ranks are at, from 1 on. */
static unsigned long long exchange(const struct company *c) { return (c->barriers - c->beside) / 2 + 1; }

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
        company_end(c, CODA_E_DEVICE, "rank %d missed exchange %llu (%s) for %d ms", r, exchange(c),
                    mine->operation, c->timeout_ms);
    else
        company_end(c, CODA_E_DEVICE, "rank %d left the group before exchange %llu (%s)", r, exchange(c),
                    mine->operation);
}

static bool somebody_left(const struct company *c)
{
    bool left = false;
    for (int r = 0; r < c->ranks; r++) left = left || (c->seat[r].left && c->seat[r].meetings <= c->barriers);
    return left;
}

static void compare_offers(struct company *c)
{
    const struct offer *a = &c->seat[0].offer;
    for (int r = 1; r < c->ranks; r++)
        if (!offers_agree(a, &c->seat[r].offer))
            return company_end_of_two(c, exchange(c), a, r, &c->seat[r].offer);
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
    c->barriers++, c->beside += c->seat[g->rank].offer.beside;
    pthread_cond_broadcast(&c->changed);
}

/* A rank whose handle another thread has brought here already would stand for two. */
static void come(coda_group *g, const struct offer *mine)
{
    struct company *c = g->company;
    struct seat *s = &c->seat[g->rank];
    if (s->meetings > c->barriers || s->reads)
        company_end(c, CODA_E_INVALID,
                    "rank %d is at exchange %llu (%s) twice; each rank has a handle of its own", g->rank,
                    exchange(c), mine->operation);
    if (c->status) return;
    s->offer = *mine;
    c->x[g->rank] = mine->x;
    barrier(g, true);
    s->reads = !c->status;
}

static bool somebody_reads(const struct company *c)
{
    bool reads = false;
    for (int r = 0; r < c->ranks; r++) reads = reads || c->seat[r].reads;
    return reads;
}

/* How a group has ended. What this rank brought is its caller's again once nobody reads it any more. */
static coda_status told_behind_readers(struct company *c)
{
    while (c->status && somebody_reads(c)) pthread_cond_wait(&c->changed, &c->lock);
    return company_told(c);
}

coda_status ranks_meet(coda_group *g, const struct offer *mine, const void *const **x)
{
    struct company *c = g->company;
    if (c->elsewhere)
        return fail(CODA_E_UNSUPPORTED, "%s: the group's other ranks are reached from GPUs alone",
                    mine->operation);
    pthread_mutex_lock(&c->lock);
    come(g, mine);
    coda_status status = told_behind_readers(c);
    *x = c->x;
    pthread_mutex_unlock(&c->lock);
    return status;
}

coda_status ranks_part(coda_group *g)
{
    struct company *c = g->company;
    pthread_mutex_lock(&c->lock);
    c->seat[g->rank].reads = false;
    if (c->status) pthread_cond_broadcast(&c->changed);
    else barrier(g, false);
    coda_status status = told_behind_readers(c);
    pthread_mutex_unlock(&c->lock);
    return status;
}

coda_status ranks_begin(coda_group *g, const char *operation)
{
    struct company *c = g->company;
    int r = 0;
    pthread_mutex_lock(&c->lock);
    while (r < c->ranks && !c->seat[r].left) r++;
    if (r < c->ranks) company_end(c, CODA_E_DEVICE, "rank %d left the group before %s", r, operation);
    coda_status status = company_told(c);
    pthread_mutex_unlock(&c->lock);
    return status;
}
