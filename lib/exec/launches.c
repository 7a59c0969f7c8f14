/* launches.c -- what a launch computes, in a line; and CODA_DEBUG=launch: a line for each program as it is
 * launched, or ends on the CPU device. */
#include "launches.h"

#include "runner.h"

#include <time.h>

double launch_clock(void)
{
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return 1e3 * (double)t.tv_sec + 1e-6 * (double)t.tv_nsec;
}

/* Prints the steps that a program has beside its kind: "add, to_bf16, sum_sq". */
static void print_steps(const struct program *q, struct text *t)
{
    const char *before = ": ";
    for (int i = 0; i < q->steps; i++) {
        const char *name = q->step[i].kind == STEP_PARTIAL ? NULL : step_name(q, &q->step[i]);
        if (!name) continue;
        text_printf(t, "%s%s", before, name);
        before = ", ";
    }
}

void launch_print(const struct program *q, struct text *t)
{
    program_print_head(q, t);
    print_steps(q, t);
}

static void name_launch(struct coda_plan *p, int index)
{
    const struct program *q = &p->plan.program[index];
    struct compiled_program *c = &p->program[index];
    const struct tensor_names names = {p->plan.graph, p->plan.buffer};
    struct text t = {0};
    if (c->kernel != KERNEL_NONE) text_printf(&t, "%s: ", p->kernel[c->kernel].info.name);
    else if (c->runner && c->runner->name) text_printf(&t, "%s: ", c->runner->name);
    launch_print(q, &t);
    program_print_scopes(&names, q, &t);
    c->range = t.failed ? NULL : arena_string(&p->arena, text_str(&t));
    text_free(&t);
}

void launches_name(struct coda_plan *p)
{
    if (!jit_ranges() && !jit_traces()) return;
    for (int i = 0; i < p->plan.programs; i++) name_launch(p, i);
    p->arena.failed = false; /* names are no reason to fail */
}

void launch_show(const struct coda_plan *p, int index, double ms)
{
    const struct program *q = &p->plan.program[index];
    const struct compiled_program *c = &p->program[index];
    struct text t = {0};
    text_printf(&t, "@%d ", index);
    if (c->kernel != KERNEL_NONE) text_printf(&t, "%s, ", p->kernel[c->kernel].info.name);
    else if (c->runner && c->runner->name) text_printf(&t, "%s, ", c->runner->name);
    launch_print(q, &t);
    text_printf(&t, "; %lld bytes", (long long)program_bytes(q));
    if (ms >= 0) text_printf(&t, ", %.3f ms", ms);
    if (q->prepare) text_append(&t, ", by coda_prepare");
    debug_line(DEBUG_LAUNCH, text_str(&t));
    text_free(&t);
}
