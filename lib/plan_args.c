/* plan_args.c -- what a plan says of its arguments. */
#include "pipeline.h"

coda_status args_copy(struct coda_plan *p, const graph *g, bool host)
{
    p->args = graph_args(g);
    p->arg = ARENA_NEW(&p->arena, struct coda_arg_info, p->args);
    p->place = ARENA_NEW(&p->arena, struct place, p->args);
    for (int i = 0; !p->arena.failed && i < p->args; i++) {
        struct coda_arg_info *a = &p->arg[i];
        graph_arg(g, i, a);
        a->name = arena_string(&p->arena, a->name);
        p->place[i] = place_of(a->name, a->kind, a->dtype, a->rank, a->dims, a->strides, host);
        p->states = p->states || a->kind == CODA_ARG_STATE || a->kind == CODA_ARG_CONSUMED;
    }
    return p->arena.failed ? fail(CODA_E_MEMORY, "out of memory for %d arguments", p->args) : CODA_OK;
}

void args_mark_folds(struct coda_plan *p)
{
    for (int i = 0; i < p->plan.buffers; i++) {
        const struct buffer *b = &p->plan.buffer[i];
        if (b->holds) p->place[b->arg].holds = b->holds;
    }
}

void args_mark_unread(struct coda_plan *p)
{
    const struct plan *plan = &p->plan;
    int first_run = 0;
    while (first_run < plan->programs && plan->program[first_run].prepare) first_run++;
    for (int i = 0; i < p->args; i++)
        p->place[i].unread = p->place[i].kind == CODA_ARG_WEIGHT || p->place[i].kind == CODA_ARG_INPUT;
    for (int i = 0; i < plan->buffers; i++) {
        const struct buffer *b = &plan->buffer[i];
        if (b->space == SPACE_ARG && (b->last >= first_run || b->holds)) p->place[b->arg].unread = false;
    }
    for (int i = 0; i < p->args; i++) p->arg[i].unread = p->place[i].unread;
}
