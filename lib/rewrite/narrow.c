/*
 * narrow.c -- multiplies 16-bit values as such where they were only cast to fp32 to be multiplied, and
 * weights of 8 bits where they were only cast.
 *
 *     matmul(cast(x, f32), W)  ==>  matmul(x, W) in fp32       x and W of one 16-bit dtype
 *     matmul(x, cast(W, t))    ==>  matmul(x, W)               W a weight of 8 bits
 *
 * and so for a cast of W, or of both, in the first. The fast kernels take no fp32, and the cast is a copy of
 * twice the size. What was fp32 by itself stays so: the caller decides to round it. In: verified graph.
 * Out: no such matmul. Exact: a product of 16-bit values has all its bits in fp32, and sums are fp32 either
 * way; and each float has all numbers of 8 bits.
 */
#include "walk.h"

/* What value v was cast from, or itself: its dtype has 16 bits. -1: there is none. */
static int narrow_of(const graph *g, int v)
{
    const struct node *n = &g->node[v];
    if (n->op == OP_CAST && n->type.dtype == CODA_F32) v = n->in[CAST_X];
    return dtype_is_half(g->node[v].type.dtype) ? v : -1;
}

/* May the product read *x and *weight? */
static bool has_wide_operand(const graph *g, int v, int *x, int *weight)
{
    const struct node *n = &g->node[v];
    if (n->op != OP_MATMUL) return false;
    *x = narrow_of(g, n->in[MATMUL_X]), *weight = narrow_of(g, n->in[MATMUL_W]);
    if (*x < 0 || *weight < 0 || (*x == n->in[MATMUL_X] && *weight == n->in[MATMUL_W])) return false;
    return g->node[*x].type.dtype == g->node[*weight].type.dtype;
}

/* The weight of 8 bits that a product's w is a cast of; -1. */
static int small_weight(const graph *g, const struct node *n)
{
    const struct node *w = n->op == OP_MATMUL ? &g->node[n->in[MATMUL_W]] : NULL;
    if (!w || w->op != OP_CAST) return -1;
    const struct node *leaf = &g->node[w->in[CAST_X]];
    while (op_is_view(leaf->op)) leaf = &g->node[leaf->in[VIEW_OF]];
    return leaf->op == OP_WEIGHT && dtype_is_storage(leaf->type.dtype) ? w->in[CAST_X] : -1;
}

static int read_small(struct walk *w, int v, int weight)
{
    const struct node *n = &w->in->node[v];
    rewrite_note(w->log, "narrow", true, "%s: %s is multiplied as it is, without its cast",
                 rewrite_name(w->in, v).s, rewrite_name(w->in, weight).s);
    struct node product = *n;
    product.in = (int[]){w->map[n->in[MATMUL_X]], w->map[weight]};
    product.origin = -1;
    return graph_append(w->out, &product);
}

static int narrow_operands(struct walk *w, int v)
{
    const struct node *n = &w->in->node[v];
    int x, weight = small_weight(w->in, n);
    if (weight >= 0) return read_small(w, v, weight);
    if (!has_wide_operand(w->in, v, &x, &weight)) return RULE_COPY;
    rewrite_note(w->log, "narrow", true, "%s: %s and %s are multiplied in %s, without their casts",
                 rewrite_name(w->in, v).s, rewrite_name(w->in, x).s, rewrite_name(w->in, weight).s,
                 dtype_name(w->in->node[x].type.dtype));
    struct node product = *n;
    product.in = (int[]){w->map[x], w->map[weight]};
    product.attr.matmul.f32 = n->type.dtype == CODA_F32;
    product.origin = -1;
    return graph_append(w->out, &product);
}

graph *narrow(const graph *in, const struct rewrite_options *opt, struct rewrite_log *log)
{
    for (int v = 0, x, weight; v < in->nodes; v++)
        if (small_weight(in, &in->node[v]) >= 0 || has_wide_operand(in, v, &x, &weight))
            return rewrite_walk(in, narrow_operands, opt, log, NULL);
    return rewrite_nothing(in);
}
