/* agenda.c -- what plans are going to do, which ranks compare before they begin with it. */
#include "company.h"

#include <stdlib.h>

bool ranks_agreed(const coda_group *g, uint64_t digest)
{
    for (int i = g->agreements; i--;) /* the latest is the likeliest */
        if (g->agreed[i] == digest) return true;
    return false;
}

bool ranks_note_agreed(coda_group *g, uint64_t digest)
{
    bool full = !(g->agreements & (g->agreements - 1)); /* 0, 1, 2, 4, ... */
    size_t room = g->agreements ? 2 * (size_t)g->agreements : 1;
    uint64_t *more = full ? realloc(g->agreed, room * sizeof *more) : g->agreed;
    if (!more) return false;
    g->agreed = more;
    g->agreed[g->agreements++] = digest;
    return true;
}

static void compare_agendas(struct company *c, const struct agenda *a, int r, const struct agenda *b)
{
    int i = 0, least = MIN(a->exchanges, b->exchanges);
    while (i < least && offers_agree(&a->exchange[i], &b->exchange[i])) i++;
    if (i == a->exchanges && i == b->exchanges)
        company_end(c, CODA_E_INVALID, "rank 0 and rank %d run other graphs, whose %d exchanges are equal", r,
                    i);
    else
        company_end_of_two(c, (unsigned long long)i + 1, i < a->exchanges ? &a->exchange[i] : NULL, r,
                           i < b->exchanges ? &b->exchange[i] : NULL);
}

coda_status ranks_agree(coda_group *g, const struct agenda *mine)
{
    struct company *c = g->company;
    const struct offer offer = {.operation = mine->exchange[0].operation, .x = mine, .beside = true};
    const void *const *x;
    coda_status status = ranks_meet(g, &offer, &x);
    if (status) return status;
    const struct agenda *first = x[0];
    pthread_mutex_lock(&c->lock);
    for (int r = 1; r < c->ranks && !c->status; r++) {
        const struct agenda *other = x[r];
        if (other->digest != first->digest) compare_agendas(c, first, r, other);
    }
    pthread_mutex_unlock(&c->lock);
    return ranks_part(g);
}

/* The lock is held. */
static void compare_run(coda_group *g, const struct begun *mine)
{
    struct company *c = g->company;
    struct begun *first = &c->begun[mine->number % RUNS_KEPT];
    if (first->number < mine->number) *first = *mine;
    if (first->number != mine->number || first->digest == mine->digest) return;
    if (first->agreed || mine->agreed)
        company_end(c, CODA_E_INVALID,
                    "run %llu of the group: rank %d has a plan whose first exchange is %s, "
                    "rank %d another one, whose first is %s",
                    (unsigned long long)mine->number, first->rank, first->operation, mine->rank,
                    mine->operation);
}

coda_status ranks_follow(coda_group *g, const struct agenda *mine, bool captured)
{
    struct company *c = g->company;
    struct begun run = {.digest = mine->digest, .operation = mine->exchange[0].operation, .rank = g->rank};
    run.agreed = ranks_agreed(g, mine->digest);
    pthread_mutex_lock(&c->lock);
    c->captured = c->captured || captured;
    run.number = ++c->seat[g->rank].runs;
    if (!c->captured) compare_run(g, &run);
    coda_status status = company_told(c);
    pthread_mutex_unlock(&c->lock);
    return status;
}
