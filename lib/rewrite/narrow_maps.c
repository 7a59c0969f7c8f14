/*
 * narrow_maps.c -- reads 16-bit values as such where they were only cast to fp32 to be computed with.
 *
 *     reduce(cast(x, f32))                  ==>  reduce(x)         x of 16 bits
 *     cast(f(cast(x, f32), ..), x's dtype)  ==>  f(x, ..)          where nobody else reads f's result
 *
 * Maps and statistics compute in fp32 whatever they read, and round what is stored. So models write norms,
 * and without the casts an epilogue takes them. In: verified graph. Out: no such casts. Exact.
 */
#include "factors.h"

/* What v was cast to fp32 from, of 16 bits; -1. */
static int widened(const graph *g, int v)
{
    const struct node *n = &g->node[v];
    if (v < 0 || n->op != OP_CAST || n->type.dtype != CODA_F32) return -1;
    return dtype_is_half(g->node[n->in[CAST_X]].type.dtype) ? n->in[CAST_X] : -1;
}

/* The map whose result v rounds to the dtype that its operand had before it was cast; -1. */
static int rounded_map(const struct walk *w, int v)
{
    const graph *g = w->in;
    const struct node *n = &g->node[v];
    if (n->op != OP_CAST || !dtype_is_half(n->type.dtype) || live_uses(w->ctx, n->in[CAST_X]) != 1) return -1;
    const struct node *f = &g->node[n->in[CAST_X]];
    if (f->op != OP_MAP || f->nin < 1) return -1;
    int x = widened(g, f->in[f->prim->facts.dtype]);
    return x >= 0 && g->node[x].type.dtype == n->type.dtype ? n->in[CAST_X] : -1;
}

static bool matches(const struct walk *w, int v)
{
    const struct node *n = &w->in->node[v];
    return (n->op == OP_REDUCE && widened(w->in, n->in[REDUCE_X]) >= 0) || rounded_map(w, v) >= 0;
}

/* Node f with x in the place of its operand `at`. */
static int with_operand(struct walk *w, const struct node *f, int at, int x)
{
    int in[PRIM_MAX_INPUTS];
    struct node made = *f;
    for (int i = 0; i < f->nin; i++) in[i] = f->in[i] < 0 ? -1 : w->map[f->in[i]];
    in[at] = w->map[x];
    made.in = in;
    made.origin = -1;
    return graph_append(w->out, &made);
}

static int replace(struct walk *w, int v)
{
    const graph *g = w->in;
    const struct node *n = &g->node[v];
    if (!matches(w, v)) return RULE_COPY;
    int f = n->op == OP_REDUCE ? v : n->in[CAST_X],
        at = n->op == OP_REDUCE ? 0 : g->node[f].prim->facts.dtype;
    int x = widened(g, g->node[f].in[at]);
    rewrite_note(w->log, "narrow_maps", true, "%s: %s is computed of %s, without casts", rewrite_name(g, v).s,
                 node_text(&g->node[f]), rewrite_name(g, x).s);
    return with_operand(w, &g->node[f], at, x);
}

graph *narrow_maps(const graph *in, const struct rewrite_options *opt, struct rewrite_log *log)
{
    return live_walk(in, replace, opt, log, matches, NULL);
}
