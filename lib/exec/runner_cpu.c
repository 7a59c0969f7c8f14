/* runner_cpu.c -- programs of the CPU device, on the host. */
#include "cpu.h"
#include "runner.h"

static bool takes(const struct coda_plan *p, int index)
{
    (void)index;
    return p->device == CODA_DEVICE_CPU;
}

static coda_status run(const struct call *c, int index)
{
    return cpu_run(&c->p->plan, &c->p->plan.program[index], c->args, c->prepared, c->workspace);
}

const struct runner runner_cpu = {.synchronous = true, .takes = takes, .run = run};
