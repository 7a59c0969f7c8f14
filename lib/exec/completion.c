/*
 * completion.c -- which program of a run is the last to write each argument, and the events that say so: who
 * waits for one on another stream may read the argument while the rest of the plan runs.
 */
#include "runner.h"

struct search {
    struct coda_plan *p;
    int program, *last;
};

static bool written(void *ctx, int buffer)
{
    struct search *s = ctx;
    const struct buffer *b = &s->p->plan.buffer[buffer];
    if (b->space == SPACE_ARG) s->last[b->arg] = s->program;
    return false;
}

/* Arguments in the order of their last writers; those that nothing writes come first, before program 0. */
coda_status completion_find(struct coda_plan *p)
{
    int programs = p->plan.programs;
    struct search s = {.p = p, .last = ARENA_NEW(&p->arena, int, p->args + 1)};
    p->completed = ARENA_NEW(&p->arena, int, p->args + 1);
    p->completed_at = ARENA_NEW(&p->arena, int, programs + 2);
    if (p->arena.failed) return fail(CODA_E_MEMORY, "out of memory for %d arguments", p->args);
    for (int a = 0; a < p->args; a++) s.last[a] = -1;
    for (s.program = 0; s.program < programs; s.program++)
        if (!p->plan.program[s.program].prepare) program_any_write(&p->plan.program[s.program], written, &s);
    for (int a = 0; a < p->args; a++) p->completed_at[s.last[a] + 2]++;
    for (int i = 1; i < programs + 2; i++) p->completed_at[i] += p->completed_at[i - 1];
    for (int a = 0; a < p->args; a++) p->completed[p->completed_at[s.last[a] + 1]++] = a;
    return CODA_OK;
}

/* Now completed_at[i + 1] is behind those of program i; -1 are the ones that nothing writes. */
coda_status completion_record(const struct call *c, int index)
{
    char err[JIT_ERROR_SIZE] = "";
    const struct coda_plan *p = c->p;
    for (int k = index < 0 ? 0 : p->completed_at[index]; k < p->completed_at[index + 1]; k++) {
        int a = p->completed[k];
        coda_status status = c->done[a] ? jit_record(c->done[a], c->stream, err) : CODA_OK;
        if (status) return fail(status, "run: the event of %s: %s", p->place[a].name, err);
    }
    return CODA_OK;
}
