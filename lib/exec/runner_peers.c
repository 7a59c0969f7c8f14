/* runner_peers.c -- sums over ranks by kernels of ours, which write into each other's memory. Ranks that do
 * not reach each other's take NCCL. */
#include "own.h"
#include "peers.h"
#include "runner.h"
#include "schedule.h"

#include <string.h>

static enum exchange_form form_of(const struct coda_plan *p, int index)
{
    const struct program *q = &p->plan.program[index];
    return q->own == &own_exchange ? (enum exchange_form)p->plan.schedule[index].tile.stages
                                   : EXCHANGE_BY_NCCL;
}

static bool takes(const struct coda_plan *p, int index) { return form_of(p, index); }

/* A sum by several trips is there only once the last one ends. */
coda_status peers_join_rows(struct coda_plan *p)
{
    coda_status status = CODA_OK;
    for (int i = 0; i + 1 < p->plan.programs && !status; i++) {
        bool joined = false;
        if (p->program[i].runner != &runner_peers || p->plan.schedule[i].tile.stages != 1) continue;
        status = schedule_join_exchange(&p->plan, i, &joined);
        if (!joined) continue;
        p->program[i].runner = NULL;
        p->program[i + 1].runner = &runner_peers;
    }
    return status;
}

/* Bytes of the terms that exchanges add up. */
static int64_t added_bytes(const struct coda_plan *p)
{
    int64_t most = 0;
    for (int i = 0; i < p->plan.programs; i++) {
        const struct exchange_spec *s = p->plan.program[i].spec;
        if (form_of(p, i) == EXCHANGE_BY_COPIES && (!s->moves || s->op == OP_ALL_GATHER))
            most = MAX(most, mul_counts(s->ranks - 1, exchange_stride(s)));
    }
    return most;
}

struct peers_room peers_room(const struct coda_plan *p)
{
    struct peers_room most = {.copied = add_counts(added_bytes(p), p->plan.inbox)};
    bool any = false;
    for (int i = 0; i < p->plan.programs; i++) {
        const struct exchange_spec *s = p->plan.program[i].spec;
        enum exchange_form form = form_of(p, i);
        any = any || form;
        if (form && form != EXCHANGE_BY_COPIES) most.area = MAX(most.area, exchange_area(s, (int)form));
    }
    most.area += any ? EXCHANGE_STARTS * EXCHANGE_START : 0;
    return most;
}

/* Words of two plans are seldom in one place, so that ranks which run another one each do not add them up. */
static uint64_t place_number(const struct coda_plan *p) { return p->agenda.digest % EXCHANGE_STARTS; }

/* The arguments of any kernel, then the group's. */
static coda_status add_company(const struct call *c, int index, struct kernel_params *params, size_t *bytes,
                               coda_group *g, const struct peers *p, char *err)
{
    size_t ranks = (size_t)ranks_count(g);
    coda_status status = kernel_params(c, index, params, bytes, err);
    if (status) return status;
    const struct peer_company company = {.notes = (void *)(uintptr_t)p->notes,
                                         .start = EXCHANGE_HEAD + place_number(c->p) * EXCHANGE_START,
                                         .area = (uint64_t)p->room.area,
                                         .patience_ns = (uint64_t)ranks_timeout(g) * 1000000u,
                                         .rank = (uint32_t)ranks_rank(g),
                                         .program = (uint32_t)index};
    *bytes = (*bytes + 7) / 8 * 8;
    char *at = (char *)params + *bytes;
    memcpy(at, p->inbox, ranks * sizeof *p->inbox);
    memcpy(at + ranks * sizeof *p->inbox, &company, sizeof company);
    *bytes += ranks * sizeof *p->inbox + sizeof company;
    return CODA_OK;
}

static coda_status launch(const struct call *c, int index, coda_group *g, const struct peers *p, char *err)
{
    const struct compiled_program *cp = &c->p->program[index];
    struct kernel_params params;
    size_t bytes;
    coda_status status = add_company(c, index, &params, &bytes, g, p, err);
    if (status) return status;
    return jit_launch(c->p->kernel[cp->kernel].kernel, &cp->launch, &params, bytes, c->stream, err);
}

/* ---- Copies ---- */

/* An exchange by copies, as this rank has it. */
struct copying {
    const struct call *call;
    int index, rank, ranks;
    const struct exchange_spec *spec;
    const struct peers *peers;
    struct peer_copies last;     /* what follows the parameters of each launch, */
    struct kernel_params params; /* ... */
    size_t size;                 /* of so many bytes */
};

static coda_status begin_copying(struct copying *o, coda_group *g, char *err)
{
    uint64_t flags = peers_flags(&o->peers->room);
    o->rank = ranks_rank(g), o->ranks = ranks_count(g);
    o->spec = o->call->p->plan.program[o->index].spec;
    o->last = (struct peer_copies){.flags = flags + place_number(o->call->p) * EXCHANGE_FLAGS,
                                   .terms = flags + EXCHANGE_STARTS * EXCHANGE_FLAGS,
                                   .stride = (uint64_t)exchange_stride(o->spec)};
    return add_company(o->call, o->index, &o->params, &o->size, g, o->peers, err);
}

/* A meeting is one warp, the sum as many blocks as were planned. */
static coda_status launch_copying(struct copying *o, enum copying_launch which, char *err)
{
    const struct coda_plan *p = o->call->p;
    const struct compiled_program *cp = &p->program[o->index];
    struct jit_launch launch = cp->launch;
    launch.pdl = false; /* behind a copy, or a meeting's end */
    o->last.launch = which;
    if (which != COPYING_SUM) launch.grid = 1, launch.threads = 32;
    memcpy((char *)&o->params + o->size, &o->last, sizeof o->last);
    return jit_launch(p->kernel[cp->kernel].kernel, &launch, &o->params, o->size + sizeof o->last,
                      o->call->stream, err);
}

/* Copies this rank's terms to each of the others: all of them, or those of the other's part. */
static coda_status copy_terms(const struct copying *o, char *err)
{
    const struct tensor_use *x = &o->spec->use[ALL_REDUCE_X];
    int64_t bytes = dtype_bytes(x->dtype, exchange_part(o->spec));
    coda_status status = CODA_OK;
    for (int i = 1; i < o->ranks && !status; i++) {
        int to = (o->rank + i) % o->ranks, number = o->rank - (o->rank > to);
        const char *from =
            (char *)call_tensor(o->call, x) + (o->spec->op == OP_REDUCE_SCATTER ? to * bytes : 0);
        char *at = o->peers->inbox[to] + o->last.terms + (uint64_t)number * o->last.stride;
        status = jit_copy(at, from, (size_t)bytes, o->call->stream, err);
    }
    return status;
}

static char *plan_inbox(const struct coda_plan *p, const struct peers *of, int rank)
{
    return of->inbox[rank] + peers_flags(&of->room) + EXCHANGE_STARTS * EXCHANGE_FLAGS + added_bytes(p);
}

coda_status peers_find_inbox(struct call *c)
{
    struct peers *of;
    if (!c->p->plan.inbox) return CODA_OK;
    coda_group *g = c->args[c->p->group[0].arg];
    coda_status status = carrier_peers(g, &of);
    if (status) return status;
    c->rank = ranks_rank(g);
    if (!of->room.area || of->apart) return CODA_OK;
    c->inbox = plan_inbox(c->p, of, c->rank);
    steady_find(c, of);
    return CODA_OK;
}

/* Copies between two ranks: x goes to its place in the other's inbox; what is gathered goes to its own place
 * if that is known, else to where terms come, and from there to it. The next exchange begins behind that. */
static coda_status bring(struct copying *o, char *err)
{
    const struct tensor_use *y = &o->spec->use[ALL_REDUCE_SUM];
    int64_t bytes = dtype_bytes(y->dtype, exchange_part(o->spec));
    int other = 1 - o->rank;
    const char *x = call_tensor(o->call, &o->spec->use[ALL_REDUCE_X]);
    char *landing = o->peers->inbox[other] + o->last.terms, *to = landing;
    if (o->spec->op != OP_ALL_GATHER)
        to = plan_inbox(o->call->p, o->peers, other) + o->call->p->plan.buffer[y->buffer].offset;
    else if (steady_at(o->call, o->index, other)) to = steady_at(o->call, o->index, other) + o->rank * bytes;
    coda_status status = launch_copying(o, COPYING_FREE, err);
    if (!status) status = jit_copy(to, x, (size_t)bytes, o->call->stream, err);
    if (!status) status = launch_copying(o, to == landing ? COPYING_COPIED : COPYING_END, err);
    if (status || to != landing) return status;
    status = jit_copy(call_tensor(o->call, y) + other * bytes, o->peers->inbox[o->rank] + o->last.terms,
                      (size_t)bytes, o->call->stream, err);
    return status ? status : launch_copying(o, COPYING_LEFT, err);
}

static coda_status copy_and_add(const struct call *c, int index, coda_group *g, const struct peers *p,
                                char *err)
{
    struct copying o = {.call = c, .index = index, .peers = p};
    coda_status status = begin_copying(&o, g, err);
    if (status || o.spec->moves) return status ? status : bring(&o, err);
    status = launch_copying(&o, COPYING_FREE, err);
    if (!status) status = copy_terms(&o, err);
    if (!status) status = launch_copying(&o, COPYING_COPIED, err);
    return status ? status : launch_copying(&o, COPYING_SUM, err);
}

/* Where there are no inboxes: NCCL, but for sums that became a part of what follows them. */
static coda_status without(const struct call *c, int index, bool folded, const char *name)
{
    if (!folded && !c->p->plan.inbox) return runner_exchange.run(c, index);
    return fail(
        CODA_E_UNSUPPORTED,
        "@%d %s: the ranks' GPUs do not reach each other's memory; without CODA_EXCHANGE=own NCCL adds up",
        index, name);
}

static coda_status run(const struct call *c, int index)
{
    const struct exchange_spec *folded = c->p->plan.schedule[index].exchange;
    const struct exchange_spec *s = folded ? folded : c->p->plan.program[index].spec;
    const char *name = op_info[s->op].text;
    coda_group *g = (coda_group *)(void *)call_address(c, s->use[ALL_REDUCE_GROUP].buffer, 0);
    char err[JIT_ERROR_SIZE] = "";
    struct peers *p;
    coda_status status = ranks_check(g, name, s->ranks);
    if (!status) status = carrier_peers(g, &p);
    if (!status && (!p->room.area || p->apart)) return without(c, index, folded, name);
    if (!status) status = ranks_begin(g, name);
    if (!status && peers_status(p, 0)) return ranks_status(g); /* which tells the others */
    if (status) return status;
    bool copied = form_of(c->p, index) == EXCHANGE_BY_COPIES;
    status = copied ? copy_and_add(c, index, g, p, err) : launch(c, index, g, p, err);
    return status ? fail(status, "@%d %s: %s", index, name, err) : CODA_OK;
}

const struct runner runner_peers = {.kernel = true, .takes = takes, .load = kernel_load, .run = run};
