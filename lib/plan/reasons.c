/* reasons.c -- see reasons.h: notes of why a group did without a node. */
#include "fuse.h"

bool refuse_join(const struct grouper *gr, enum reason_kind kind, int other, int64_t a, int64_t b)
{
    struct reasons *to = gr->opt->reasons;
    if (to) to->last = (struct reason){kind, -1, other, a, b};
    return false;
}

void refuse_keep(const struct grouper *gr, const struct group *q, int node)
{
    struct reasons *to = gr->opt->reasons;
    if (!to || to->last.kind == REASON_NONE) return;
    struct refusal *r = ARENA_NEW(to->arena, struct refusal, 1);
    if (!r) return;
    to->last.node = node;
    *r = (struct refusal){q, to->last, to->of[node]};
    to->of[node] = r;
    to->last = (struct reason){REASON_NONE};
}

void refuse_note(const struct grouper *gr, const struct group *q, int node, enum reason_kind kind, int other,
                 int64_t a, int64_t b)
{
    refuse_join(gr, kind, other, a, b);
    refuse_keep(gr, q, node);
}

/* What a view does to the order of elements, of several views the most. */
static enum reason_kind kind_of_views(const graph *g, int value)
{
    enum reason_kind kind = REASON_RESHAPED;
    for (; op_is_view(g->node[value].op); value = g->node[value].in[0]) {
        if (g->node[value].op == OP_TRANSPOSE) return REASON_TRANSPOSED;
        if (g->node[value].op == OP_SLICE) kind = REASON_SLICED;
    }
    return kind;
}

bool refuse_source(const struct grouper *gr, const struct group *q, int value)
{
    const graph *g = gr->g;
    int base = value;
    while (op_is_view(g->node[base].op)) base = g->node[base].in[0];
    const struct node *n = &g->node[base];
    if (!group_holds(gr, q, base)) return refuse_join(gr, REASON_DEPENDS, value, 0, 0);
    if (group_writes_state(gr, base)) return refuse_join(gr, REASON_STATE, base, 0, 0);
    if (!gr->site[base].partial) return refuse_join(gr, kind_of_views(g, value), value, 0, 0);
    const struct type *of = &g->node[n->in[0]].type;
    if (!n->attr.reduce.columns) return refuse_join(gr, REASON_ROW_STATISTIC, base, type_columns(of), 0);
    return refuse_join(gr, REASON_COLUMN_STATISTIC, base, of->dim[of->rank - 2], 0);
}
