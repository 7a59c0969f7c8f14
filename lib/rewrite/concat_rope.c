/*
 * concat_rope.c -- turns what is put together along tokens part by part.
 *
 *     rope(concat(a, b), p)  ==>  concat(rope(a, p[:n]), rope(b, p[n:]))      n tokens of a
 *
 * so that whoever computes a and b turns them, and stores them where they are put together: streams of text
 * and pictures that attend to each other as one. Only where the concat has no other reader, and a part is
 * computed element by element, or by a product: else it would be in memory in any case. In: verified graph.
 * Out: no such turn. Exact.
 */
#include "factors.h"
#include "guards.h"

/* The dimension of positions that counts rows, ahead of that of sections. */
static int rows_of(const graph *g, const struct node *n)
{
    return g->node[n->in[ROPE_POSITIONS]].type.rank - 1 - (n->attr.rope.section[0] != 0);
}

static bool matches(const struct walk *w, int v)
{
    const graph *g = w->in;
    const struct live *live = w->ctx;
    const struct node *n = &g->node[v];
    if (n->op != OP_ROPE || !live->is[v] || n->in[ROPE_POSITIONS] < 0) return false;
    const struct node *c = &g->node[n->in[ROPE_X]];
    int rank = c->type.rank;
    return c->op == OP_CONCAT && rank > 1 && c->attr.concat.axis == rank - 2 && !c->attr.concat.interleave &&
           live_uses(live, n->in[ROPE_X]) == 1 && c->output < 0 && is_computed(g, n->in[ROPE_X]);
}

/* Positions of the rows from `first` on, up to `end`; all, if one is for all rows. */
static int positions(struct walk *w, const struct node *n, int64_t first, int64_t end)
{
    int p = n->in[ROPE_POSITIONS], axis = rows_of(w->in, n), in = w->map[p];
    if (axis < 0 || extent_is_one(w->in->node[p].type.dim[axis])) return in;
    struct node slice = {.op = OP_SLICE, .nin = 1, .in = &in, .origin = -1};
    slice.attr.slice = (struct attr_slice){axis, first, end, 1};
    return graph_append(w->out, &slice);
}

static int replace(struct walk *w, int v)
{
    if (!matches(w, v)) return RULE_COPY;
    const struct node *n = &w->in->node[v], *c = &w->in->node[n->in[ROPE_X]];
    struct node whole = *c;
    int64_t first = 0;
    whole.in = graph_map_operands(w->out, c, w->map);
    if (!whole.in) return RULE_FAILED;
    rewrite_note(w->log, "concat_rope", true, "%s: each part of %s is turned by itself",
                 rewrite_name(w->in, v).s, rewrite_name(w->in, n->in[ROPE_X]).s);
    for (int i = 0; i < c->nin; i++) {
        struct node turn = *n;
        int64_t end = dims_add(w->out->dims, first, w->in->node[c->in[i]].type.dim[c->attr.concat.axis]);
        if (end == DIM_NONE) return rewrite_needs_numbers(w, "a part of a concat");
        turn.in = graph_map_operands(w->out, n, w->map);
        if (!turn.in || (turn.in[ROPE_POSITIONS] = positions(w, n, first, end)) < 0) return RULE_FAILED;
        turn.in[ROPE_X] = whole.in[i];
        turn.origin = -1;
        if ((whole.in[i] = graph_append(w->out, &turn)) < 0) return RULE_FAILED;
        first = end;
    }
    whole.origin = -1;
    return graph_append(w->out, &whole);
}

graph *concat_rope(const graph *in, const struct rewrite_options *opt, struct rewrite_log *log)
{
    for (int v = 0; v < in->nodes; v++)
        if (in->node[v].op == OP_ROPE && in->node[in->node[v].in[ROPE_X]].op == OP_CONCAT)
            return live_walk(in, replace, opt, log, matches, NULL);
    return rewrite_nothing(in);
}
