/* runner_peers.c -- sums over ranks by kernels of ours, which write into each other's memory. Ranks that do
 * not reach each other's take NCCL. */
#include "own.h"
#include "peers.h"
#include "runner.h"
#include "schedule.h"

#include <string.h>

static int trips(const struct coda_plan *p, int index)
{
    const struct program *q = &p->plan.program[index];
    return q->own == &own_exchange ? exchange_trips(q->spec, p->options.exchange) : 0;
}

static bool takes(const struct coda_plan *p, int index) { return trips(p, index); }

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

int64_t peers_area(const struct coda_plan *p)
{
    int64_t most = 0;
    for (int i = 0; i < p->plan.programs; i++) {
        int n = trips(p, i);
        if (n) most = MAX(most, exchange_area(p->plan.program[i].spec, n));
    }
    return most ? most + EXCHANGE_STARTS * EXCHANGE_START : 0;
}

/* Words of two plans are seldom in one place, so that ranks which run another one each do not add them up. */
static uint64_t start_of(const struct coda_plan *p)
{
    return EXCHANGE_HEAD + p->agenda.digest % EXCHANGE_STARTS * EXCHANGE_START;
}

/* The arguments of any kernel, then the group's. */
static coda_status launch(const struct call *c, int index, coda_group *g, const struct peers *p, char *err)
{
    const struct compiled_program *cp = &c->p->program[index];
    struct kernel_params params;
    size_t bytes, ranks = (size_t)ranks_count(g);
    coda_status status = kernel_params(c, index, &params, &bytes, err);
    if (status) return status;
    const struct peer_company company = {.notes = (void *)(uintptr_t)p->notes,
                                         .start = start_of(c->p),
                                         .area = (uint64_t)p->area,
                                         .patience_ns = (uint64_t)ranks_timeout(g) * 1000000u,
                                         .rank = (uint32_t)ranks_rank(g),
                                         .program = (uint32_t)index};
    bytes = (bytes + 7) / 8 * 8;
    char *at = (char *)&params + bytes;
    memcpy(at, p->inbox, ranks * sizeof *p->inbox);
    memcpy(at + ranks * sizeof *p->inbox, &company, sizeof company);
    bytes += ranks * sizeof *p->inbox + sizeof company;
    return jit_launch(c->p->kernel[cp->kernel].kernel, &cp->launch, &params, bytes, c->stream, err);
}

/* Where there are no inboxes: NCCL, but for sums that became a part of what follows them. */
static coda_status without(const struct call *c, int index, bool folded, const char *name)
{
    if (!folded) return runner_exchange.run(c, index);
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
    if (!status && (!p->area || p->apart)) return without(c, index, folded, name);
    if (!status) status = ranks_begin(g, name);
    if (!status && peers_status(p, 0)) return ranks_status(g); /* which tells the others */
    if (!status && (status = launch(c, index, g, p, err)))
        return fail(status, "@%d %s: %s", index, name, err);
    return status;
}

const struct runner runner_peers = {.kernel = true, .takes = takes, .load = kernel_load, .run = run};
