/*
 * mean_square.c -- a row's mean of squares, written out, is the statistic that norms have.
 *
 *     mean(x x)  ==>  sum_sq(x) / N      of N columns, N not 0
 *
 * An epilogue keeps sum_sq for the columns of a head, too, while a product would be stored for the mean.
 * In: verified graph. Out: no such mean. Inexact: the sum is in another order, and inf where the squares add
 * up to more than 3.4e38, though their mean is less, as a norm's is.
 */
#include "guards.h"
#include "walk.h"

/* The value whose square v is, or -1. A map that is linear in each operand, and the first one where the
 * second is 1, is their product. */
static int root_of(const graph *g, int v)
{
    const struct node *n = &g->node[v];
    if (n->op != OP_MAP || n->nin != 2 || n->in[0] != n->in[1]) return -1;
    const struct prim_facts *f = &n->prim->facts;
    return f->linear == 3 && f->identity == 2 && f->identity_at == 1 ? n->in[0] : -1;
}

static int replace(struct walk *w, int v)
{
    const struct node *n = &w->in->node[v];
    if (n->op != OP_REDUCE || n->attr.reduce.columns || strcmp(n->prim->name, "mean") != 0) return RULE_COPY;
    int x = root_of(w->in, n->in[REDUCE_X]);
    int64_t columns = type_columns(&w->in->node[n->in[REDUCE_X]].type);
    if (x < 0 || extents_equal(columns, 0)) return RULE_COPY; /* the mean of none is NaN */
    int y = graph_reduce(w->out, "sum_sq", w->map[x], -1);
    rewrite_note(w->log, "mean_square", false, "%s: the mean of squares of %s is made of their sum",
                 rewrite_name(w->in, v).s, rewrite_name(w->in, x).s);
    return graph_map(w->out, "scale", y, -1, (float[]){rewrite_part(w, columns)});
}

graph *mean_square(const graph *in, const struct rewrite_options *opt, struct rewrite_log *log)
{
    return rewrite_walk(in, replace, opt, log, NULL);
}
