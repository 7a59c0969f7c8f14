/*
 * add_shifts.c -- a bias that a fold has left behind a product joins the product's own.
 *
 *     cast(x + a, t) + b  ==>  cast(x + (a + b), t)    a [N], f32, and b [N] constant; also without a cast
 *
 * A cast of a sum in f32 alone: the sum with b, too, would have the range and the bits of a narrower one, and
 * a product that reads it would take it without the cast (narrow.c).
 *
 * Only where the caller lets constants fold: coda_prepare computes a + b, so that an epilogue loads one
 * vector and adds once.
 * In: verified graph. Out: no such sum. Inexact: rounding moves.
 */
#include "commute.h"

#include <string.h>

static bool adds(const graph *g, int v, const struct layer *l)
{
    return l->kind == LAYER_COL_SHIFT && !strcmp(g->node[v].prim->name, "add");
}

static bool is_folded(const struct walk *w, int v)
{
    return carry_is_constant(w->ctx, v) && w->in->node[v].type.rank == 1;
}

/* In w->out: a + b. Where a is sums of rows as a vector, b is added to these, where they are made. */
static int sum_of(struct walk *w, int a, int b)
{
    const struct node *n = &w->in->node[a];
    if (n->op != OP_RESHAPE)
        return graph_map(w->out, "add", w->map[a], carry_as(w, w->map[b], CODA_F32), NULL);
    const struct type *t = &w->in->node[n->in[0]].type;
    int rows = carry_as(w, graph_reshape(w->out, w->map[b], t->rank, t->dim), CODA_F32);
    return graph_reshape(w->out, graph_map(w->out, "add", w->map[n->in[0]], rows, NULL), n->type.rank,
                         n->type.dim);
}

static int carry(struct walk *w, int v)
{
    const graph *g = w->in;
    struct layer outer = layer_of(g, v);
    if (!adds(g, v, &outer) || !is_folded(w, outer.factor)) return RULE_COPY;
    int sum = outer.base;
    struct layer inner = layer_of(g, sum);
    bool wide = inner.kind == LAYER_CAST && g->node[inner.base].type.dtype == CODA_F32;
    if (wide && carry_uses(w->ctx, sum) == 1) sum = inner.base, inner = layer_of(g, sum);
    if (!adds(g, sum, &inner) || !is_folded(w, inner.factor) || carry_uses(w->ctx, sum) > 1) return RULE_COPY;
    if (g->node[inner.factor].type.dtype != CODA_F32) return RULE_COPY;
    int shift = sum_of(w, inner.factor, outer.factor);
    rewrite_note(w->log, "add_shifts", false, "%s: the biases %s and %s are one", rewrite_name(g, v).s,
                 rewrite_name(g, inner.factor).s, rewrite_name(g, outer.factor).s);
    return carry_result(w, v, graph_map(w->out, "add", w->map[inner.base], shift, NULL));
}

graph *add_shifts(const graph *in, const struct rewrite_options *opt, struct rewrite_log *log)
{
    return carry_walk(in, carry, opt, log);
}
