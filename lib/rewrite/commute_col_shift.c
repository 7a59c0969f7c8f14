/*
 * commute_col_shift.c -- turns a bias before a matmul into a constant bias after it.
 *
 *     matmul(x + b, W)  ==>  matmul(x, W) + W b       b [K] and W constant
 *
 * Only where the caller lets constants fold; coda_prepare computes W b, in fp32.
 * In: verified graph. Out: no such matmul. Inexact: rounding moves.
 */
#include "commute.h"

/* W b as [N] or [..,1,N]: the sums of b W over K. b is the first operand and f32, so the products are f32. */
static int product(struct walk *w, int weight, int b, bool kn)
{
    int vector = carry_vector(w, b, false);
    struct node cast = {.op = OP_CAST, .nin = 1, .in = &vector, .attr.cast.to = CODA_F32, .origin = -1};
    if (w->in->node[b].type.dtype != CODA_F32) vector = graph_append(w->out, &cast);
    if (kn) weight = carry_transpose(w, weight);
    return carry_weight_sum(w, graph_map(w->out, "mul", vector, weight, NULL), false);
}

static int carry(struct walk *w, int v)
{
    const struct node *n = &w->in->node[v];
    if (n->op != OP_MATMUL) return RULE_COPY;
    struct layer l = layer_of(w->in, n->in[MATMUL_X]);
    if (l.kind != LAYER_COL_SHIFT || !carry_folds(w, n->in[MATMUL_X]) || !carry_pays(w, n->in[MATMUL_X]))
        return RULE_COPY;
    bool kn = n->attr.matmul.kn;
    int weight = w->map[n->in[MATMUL_W]], shift = product(w, weight, l.factor, kn);
    rewrite_note(w->log, "carry_col_shift", false, "%s: the bias %s moves past the matmul by %s",
                 rewrite_name(w->in, v).s, rewrite_name(w->in, l.factor).s,
                 rewrite_weight(w->in, n->in[MATMUL_W]).s);
    int y = carry_product(w, v, w->map[l.base], weight, kn);
    return carry_result(w, v, graph_map(w->out, w->in->node[n->in[MATMUL_X]].prim->name, y, shift, NULL));
}

graph *carry_col_shift(const graph *in, const struct rewrite_options *opt, struct rewrite_log *log)
{
    return carry_walk(in, carry, opt, log);
}
