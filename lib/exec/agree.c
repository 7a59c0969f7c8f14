/* agree.c -- before a plan's first exchange all its ranks compare what they are going to do: graphs that
 * differ would wait for each other for ever, or add up what has nothing to do with each other. */
#include "own.h"
#include "runner.h"

#include <string.h>

/* ---- What a plan is going to do ---- */

static struct offer offer_of(const struct exchange_spec *s)
{
    return (struct offer){.operation = op_info[s->op].text,
                          .dtype = (int)s->use[ALL_REDUCE_X].dtype,
                          .outer = s->outer,
                          .extent = s->extent,
                          .inner = s->inner};
}

static int group_of(const struct plan *p, const struct exchange_spec *s)
{
    return p->buffer[s->use[ALL_REDUCE_GROUP].buffer].arg;
}

/* The digest of the caller's graph, the library, the shapes at hand, the exchanges and what our kernels
 * want of inboxes, and where; not of what only says how fast it is: ranks may have tuned differently. */
static uint64_t digest_of(const struct coda_plan *p)
{
    const struct peers_room room = peers_room(p);
    uint64_t d[5] = {p->graph_digest, hash_of(CODA_VERSION_STRING, strlen(CODA_VERSION_STRING)), 0,
                     (uint64_t)room.area, (uint64_t)room.copied};
    for (int i = 0; i < p->args; i++) {
        d[2] = (uint64_t)p->place[i].at.bytes;
        d[0] = hash_of(d, sizeof d);
    }
    for (int i = 0; i < p->agenda.exchanges; i++) {
        const struct offer *o = &p->agenda.exchange[i];
        const int64_t e[] = {(int64_t)d[0],     (int64_t)hash_of(o->operation, strlen(o->operation)),
                             (int64_t)o->dtype, o->outer,
                             o->extent,         o->inner};
        d[0] = hash_of(e, sizeof e);
    }
    if (p->plan.inbox && p->plan.steady) d[1] ^= p->plan.steady, d[0] = hash_of(d, sizeof d);
    for (int i = 0; i < p->plan.programs && p->plan.inbox; i++) {
        const struct exchange_spec *s = p->plan.program[i].spec;
        if (p->plan.program[i].own != &own_exchange || !s->moves || s->op == OP_ALL_GATHER) continue;
        d[2] = (uint64_t)p->plan.buffer[s->use[ALL_REDUCE_SUM].buffer].offset;
        d[0] = hash_of(d, sizeof d);
    }
    return d[0];
}

static bool has_group(const struct coda_plan *p, int arg)
{
    for (int i = 0; i < p->groups; i++)
        if (p->group[i].arg == arg) return true;
    return false;
}

coda_status agenda_find(struct coda_plan *p)
{
    struct offer *o = NULL;
    int n = 0;
    for (int i = 0; i < p->plan.programs; i++) n += p->plan.program[i].own == &own_exchange;
    if (!n) return CODA_OK;
    o = ARENA_NEW(&p->arena, struct offer, n);
    p->group = ARENA_NEW(&p->arena, struct plan_group, n);
    if (p->arena.failed) return fail(CODA_E_MEMORY, "out of memory for %d exchanges", n);
    p->agenda.exchange = o;
    for (int i = 0; i < p->plan.programs; i++) {
        const struct exchange_spec *s = p->plan.program[i].spec;
        if (p->plan.program[i].own != &own_exchange) continue;
        o[p->agenda.exchanges++] = offer_of(s);
        p->prepares_exchange = p->prepares_exchange || p->plan.program[i].prepare;
        int arg = group_of(&p->plan, s);
        if (!has_group(p, arg)) p->group[p->groups++] = (struct plan_group){arg, s->ranks};
    }
    p->agenda.digest = digest_of(p);
    return CODA_OK;
}

/* ---- Before a run ---- */

static coda_status compare(const struct call *c, coda_group *g)
{
    const struct agenda *mine = &c->p->agenda;
    if (!ranks_are_elsewhere(g)) return ranks_agree(g, mine);
    return carrier_agree(c, g, mine);
}

/* What our kernels want before the first of them begins. */
static coda_status reserve(const struct call *c, coda_group *g)
{
    struct peers_room room = {0, 0};
    struct peers *p;
    if (c->p->device == CODA_DEVICE_GPU) room = peers_room(c->p);
    if (!room.area) return CODA_OK;
    coda_status status = carrier_peers(g, &p);
    if (!status) status = peers_reserve(c, g, p, room, c->p->agenda.exchange[0].operation, carrier_tell);
    return status ? status : steady_tell(c, g, p);
}

static bool is_captured(const struct call *c)
{
    return c->p->device == CODA_DEVICE_GPU && jit_is_captured(c->stream);
}

coda_status agree(const struct call *c)
{
    const struct coda_plan *p = c->p;
    coda_status status = CODA_OK;
    for (int i = 0; i < p->groups && !status; i++) {
        coda_group *g = c->args[p->group[i].arg];
        status = ranks_check(g, p->place[p->group[i].arg].name, p->group[i].ranks);
        if (!status) status = ranks_follow(g, &p->agenda, is_captured(c));
        if (status || ranks_agreed(g, p->agenda.digest)) continue;
        status = compare(c, g);
        if (!status) status = reserve(c, g);
        if (!status && !ranks_note_agreed(g, p->agenda.digest))
            status = fail(CODA_E_MEMORY, "out of memory for a plan of a group of %d ranks", ranks_count(g));
    }
    return status;
}
