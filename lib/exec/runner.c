/* runner.c -- who runs each program of a plan. */
#include "runner.h"

static const struct runner *runner_of(const struct coda_plan *p, int index)
{
    static const struct runner *const runners[] = {
#define X(name) &runner_##name,
        RUNNERS(X)
#undef X
    };
    int i = 0;
    while (i + 1 < ARRAY_SIZE(runners) && !runners[i]->takes(p, index)) i++;
    return runners[i];
}

coda_status runners_choose(struct coda_plan *p)
{
    p->program = ARENA_NEW(&p->arena, struct compiled_program, p->plan.programs);
    if (p->arena.failed) return fail(CODA_E_MEMORY, "out of memory for %d programs", p->plan.programs);
    bool apart = false;
    for (int i = 0; i < p->plan.programs; i++) {
        p->program[i] = (struct compiled_program){.runner = runner_of(p, i), .kernel = KERNEL_NONE};
        apart = apart || p->program[i].runner->apart;
    }
    coda_status status = agenda_find(p);
    if (!status) status = completion_find(p);
    if (status) return status;
    return apart && !p->plan.waits ? plan_find_waits(&p->plan) : CODA_OK;
}
