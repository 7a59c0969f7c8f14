/* plan.c -- a plan's memory, and what was decided before it is made. */
#include "plan.h"

#include <string.h>

void plan_free(struct plan *p)
{
    graph_free((graph *)p->graph);
    arena_free(&p->arena);
    memset(p, 0, sizeof *p);
}

int plan_add_buffer(struct plan *p, struct buffer b)
{
    struct buffer *more = arena_grow(&p->arena, p->buffer, p->buffers, &p->buffer_capacity, sizeof b);
    if (!more) return 0; /* the arena remembers */
    p->buffer = more;
    p->buffer[p->buffers] = b;
    return p->buffers++;
}

const struct decision *plan_decision(const struct plan_options *opt, int root)
{
    int low = 0, high = opt->decisions;
    while (low < high) {
        int middle = (low + high) / 2;
        if (opt->decision[middle].root < root) low = middle + 1;
        else high = middle;
    }
    return low < opt->decisions && opt->decision[low].root == root ? &opt->decision[low] : NULL;
}

coda_status plan_arrange(struct plan *p)
{
    coda_status status = p->accumulates ? plan_accumulate(p) : CODA_OK;
    if (!status) status = plan_order(p);
    if (!status && p->accumulates) status = plan_begin_sums(p);
    return !status && p->by_size ? plan_reuse(p) : status;
}
