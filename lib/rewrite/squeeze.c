/*
 * squeeze.c -- dimensions of 1 that a reshape takes off the front of what broadcasts are left on.
 *
 *     f(x, reshape(u))  ==>  f(x, u)         u [1, .., M, N] reshaped to [.., M, N], f a map of as many dims
 *     f(reshape(u))     ==>  reshape(f(u))   the same of rows, N = 1, f a map or a cast of it and of numbers
 *
 * Where f computes of rows of x, u has a value for each, but its reshape is one of other rows, and waits in
 * memory for them. In: verified graph. Out: no such reshape. Exact.
 */
#include "guards.h"
#include "walk.h"

/* What v is without a reshape that takes 1s off its front, and leaves two dimensions or more; -1. */
static int whole_of(const graph *g, int v)
{
    const struct node *n = &g->node[v];
    if (v < 0 || n->op != OP_RESHAPE || n->type.rank < 2) return -1;
    const struct type *from = &g->node[n->in[0]].type;
    int less = from->rank - n->type.rank;
    if (less <= 0) return -1;
    for (int d = 0; d < less; d++)
        if (!extent_is_one(from->dim[d])) return -1;
    return extents_all_equal(from->dim + less, n->type.dim, n->type.rank) ? n->in[0] : -1;
}

/* The operand of map n that broadcasts as well without its reshape; -1. */
static int broadcast_operand(const graph *g, const struct node *n)
{
    for (int i = 0; n->op == OP_MAP && i < n->nin; i++) {
        int u = whole_of(g, n->in[i]);
        if (u >= 0 && g->node[u].type.rank <= n->type.rank) return i;
    }
    return -1;
}

/* An operand of n that is a reshape of rows, if all others are numbers or such reshapes of others; -1. */
static int reshaped_rows(const graph *g, const struct node *n)
{
    int first = -1;
    if (n->op != OP_MAP && n->op != OP_CAST) return -1;
    for (int i = 0; i < n->nin; i++) {
        const struct type *t = &g->node[n->in[i]].type;
        if (t->rank == 0) continue;
        int u = whole_of(g, n->in[i]);
        if (u < 0 || !extent_is_one(t->dim[t->rank - 1])) return -1;
        if (first >= 0 && g->node[u].type.rank != g->node[whole_of(g, n->in[first])].type.rank) return -1;
        if (first >= 0 && !extents_all_equal(t->dim, g->node[n->in[first]].type.dim, t->rank)) return -1;
        if (first < 0) first = i;
    }
    return first;
}

static int replace(struct walk *w, int v)
{
    const graph *g = w->in;
    const struct node *n = &g->node[v];
    int at = broadcast_operand(g, n), first = at < 0 ? reshaped_rows(g, n) : -1, in[PRIM_MAX_INPUTS];
    if (at < 0 && first < 0) return RULE_COPY;
    struct node made = *n;
    for (int i = 0; i < n->nin; i++) {
        int u = first >= 0 || i == at ? whole_of(g, n->in[i]) : -1;
        in[i] = w->map[u >= 0 ? u : n->in[i]];
    }
    made.in = in;
    rewrite_note(w->log, "squeeze", true, "%s: %s reads %s without its reshape", rewrite_name(g, v).s,
                 node_text(n), rewrite_name(g, whole_of(g, n->in[at >= 0 ? at : first])).s);
    int y = graph_append(w->out, &made);
    if (first < 0) return y;
    struct node reshape = g->node[n->in[first]];
    reshape.in = &y;
    return graph_append(w->out, &reshape);
}

graph *squeeze(const graph *in, const struct rewrite_options *opt, struct rewrite_log *log)
{
    for (int v = 0; v < in->nodes; v++)
        if (broadcast_operand(in, &in->node[v]) >= 0 || reshaped_rows(in, &in->node[v]) >= 0)
            return rewrite_walk(in, replace, opt, log, NULL);
    return rewrite_nothing(in);
}
