/* runner_exchange.c -- exchanges between ranks on a GPU: there are none yet. Those of the CPU device are
 * programs of its own runner. */
#include "own.h"
#include "runner.h"

static bool takes(const struct coda_plan *p, int index)
{
    const struct program *q = &p->plan.program[index];
    return q->own == &own_exchange;
}

static coda_status load(struct coda_plan *p, int index)
{
    const struct exchange_spec *s = p->plan.program[index].spec;
    return fail(CODA_E_UNSUPPORTED,
                "@%d %s: ranks that exchange are threads on the CPU device; %lld ranks on GPUs "
                "are not there yet",
                index, op_info[s->op].text, (long long)s->ranks);
}

static coda_status run(const struct call *c, int index)
{
    (void)c, (void)index;
    return CODA_E_UNSUPPORTED;
}

const struct runner runner_exchange = {.name = "exchange", .takes = takes, .load = load, .run = run};
