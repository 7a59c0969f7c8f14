/* runner_nothing.c -- programs whose results have no element: there is no work, however many sequences there
 * are, which a kernel may not be able to count. Ranks meet all the same. */
#include "own.h"
#include "runner.h"

static bool has_bytes(void *ctx, int buffer)
{
    const struct plan *p = ctx;
    return p->buffer[buffer].bytes > 0;
}

static bool takes(const struct coda_plan *p, int index)
{
    const struct program *q = &p->plan.program[index];
    bool alone = q->own != &own_exchange && plan_together(&p->plan, index) == 1;
    return alone && !program_any_write(q, has_bytes, (void *)&p->plan);
}

static coda_status run(const struct call *c, int index) { return (void)c, (void)index, CODA_OK; }

const struct runner runner_nothing = {.name = "nothing", .synchronous = true, .takes = takes, .run = run};
