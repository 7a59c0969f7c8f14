/*
 * narrow.c -- multiplies 16-bit values as such where they were only cast to fp32 to be multiplied.
 *
 *     matmul(cast(x, f32), W)  ==>  matmul(x, W) in fp32       x and W of one 16-bit dtype
 *
 * and so for a cast of W, or of both. The fast kernels take no fp32, and the cast is a copy of twice the
 * size. What was fp32 by itself stays so: rounding it is the caller's to decide. In: verified graph. Out:
 * no such matmul. Exact: a product of 16-bit values has all its bits in fp32, and sums are fp32 either way.
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

static int narrow_operands(struct walk *w, int v)
{
    const struct node *n = &w->in->node[v];
    int x, weight;
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
        if (has_wide_operand(in, v, &x, &weight)) return rewrite_walk(in, narrow_operands, opt, log, NULL);
    return rewrite_nothing(in);
}
