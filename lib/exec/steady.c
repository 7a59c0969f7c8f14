/*
 * steady.c -- where ranks that are threads have what each gathers of the other, for plans whose runs all have
 * the memory of the first one (CODA_STEADY): then copy engines bring it there. The ranks tell each other when
 * they agree on the plan; from then on each looks at its own addresses ahead of every run, so that nobody
 * writes where the other one's argument no longer is.
 */
#include "own.h"
#include "peers.h"
#include "runner.h"

#include <stdlib.h>

static bool gathers(const struct program *q)
{
    const struct exchange_spec *s = q->own == &own_exchange && !q->prepare ? q->spec : NULL;
    return s && s->moves && s->op == OP_ALL_GATHER;
}

/* How many gathers there are in the programs ahead of one. */
static int gathers_ahead(const struct coda_plan *p, int index)
{
    int n = 0;
    for (int i = 0; i < index; i++) n += gathers(&p->plan.program[i]);
    return n;
}

static void find_own(const struct call *c, char **at)
{
    for (int i = 0; i < c->p->plan.programs; i++) {
        const struct exchange_spec *s = c->p->plan.program[i].spec;
        if (gathers(&c->p->plan.program[i])) *at++ = call_tensor(c, &s->use[ALL_REDUCE_SUM]);
    }
}

static const struct steady *steady_of(const struct peers *p, uint64_t digest)
{
    const struct steady *s = p->steady;
    while (s && s->digest != digest) s = s->next;
    return s;
}

coda_status steady_tell(const struct call *c, coda_group *g, struct peers *p)
{
    int n = gathers_ahead(c->p, c->p->plan.programs), ranks = ranks_count(g);
    bool wanted = c->p->plan.steady && n && !p->apart && !ranks_are_elsewhere(g);
    if (!wanted || steady_of(p, c->p->agenda.digest)) return CODA_OK;
    struct steady *s = malloc(sizeof *s + sizeof *s->at * (size_t)n * (size_t)ranks);
    char **own = malloc(sizeof *own * (size_t)n);
    coda_status status = CODA_OK;
    if (!s || !own) status = fail(CODA_E_MEMORY, "out of memory for what %d ranks gather", ranks);
    if (!status) {
        find_own(c, own);
        status = carrier_tell(c, g, "all_gather", own, sizeof *own * (size_t)n, s->at);
    }
    free(own);
    if (status) return free(s), status;
    s->next = p->steady, s->digest = c->p->agenda.digest, s->gathers = n;
    p->steady = s;
    return CODA_OK;
}

coda_status steady_check(const struct call *c)
{
    struct peers *p;
    if (!c->p->plan.steady || !c->p->plan.inbox) return CODA_OK;
    coda_group *g = c->args[c->p->group[0].arg];
    coda_status status = ranks_check(g, c->p->place[c->p->group[0].arg].name, c->p->group[0].ranks);
    if (!status) status = carrier_peers(g, &p);
    const struct steady *s = status ? NULL : steady_of(p, c->p->agenda.digest);
    for (int i = 0, k = 0; s && i < c->p->plan.programs; i++) {
        const struct exchange_spec *of = c->p->plan.program[i].spec;
        if (!gathers(&c->p->plan.program[i])) continue;
        if (s->at[ranks_rank(g) * s->gathers + k++] != call_tensor(c, &of->use[ALL_REDUCE_SUM]))
            return fail(CODA_E_INVALID,
                        "run: @%d all_gather: its result lies elsewhere than in the group's first run of the "
                        "graph, whose plan has CODA_STEADY",
                        i);
    }
    return status;
}

void steady_find(struct call *c, const struct peers *p) { c->steady = steady_of(p, c->p->agenda.digest); }

char *steady_at(const struct call *c, int index, int rank)
{
    const struct steady *s = c->steady;
    return s ? s->at[rank * s->gathers + gathers_ahead(c->p, index)] : NULL;
}
