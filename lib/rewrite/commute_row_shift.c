/*
 * commute_row_shift.c -- carries a shift of the rows past the matmul, as a product of two vectors.
 *
 *     matmul(x - m, W)  ==>  matmul(x, W) - s m       m [..,1], s = the sums of W over K, [N]
 *
 * With carry_row_scale, carry_col_scale and carry_col_shift this defers a LayerNorm: the matmul reads
 * x and does not wait for its mean. s is taken from the weight that the matmul really reads, a
 * rounded W g as it may be, so that the mean cancels. Only with a constant W, where the caller lets
 * constants fold. In: verified graph. Out: no such matmul. Inexact: it cancels where |m| is large.
 */
#include "commute.h"

static int carry(struct walk *w, int v)
{
    const struct node *n = &w->in->node[v];
    if (n->op != OP_MATMUL) return RULE_COPY;
    struct layer l = layer_of(w->in, n->in[MATMUL_X]);
    if (l.kind != LAYER_ROW_SHIFT || !carry_folds(w, n->in[MATMUL_X]) || !carry_pays(w, n->in[MATMUL_X]))
        return RULE_COPY;
    bool kn = n->attr.matmul.kn;
    int weight = w->map[n->in[MATMUL_W]], sums = carry_weight_sum(w, weight, kn);
    int shift = graph_map(w->out, "mul", sums, w->map[l.factor], NULL);
    rewrite_note(w->log, "carry_row_shift", false, "%s: %s moves past the matmul by %s, times its sums",
                 rewrite_name(w->in, v).s, rewrite_meaning(w->in, l.factor).s,
                 rewrite_weight(w->in, n->in[MATMUL_W]).s);
    int y = carry_product(w, v, w->map[l.base], weight, kn);
    return carry_result(w, v, graph_map(w->out, w->in->node[n->in[MATMUL_X]].prim->name, y, shift, NULL));
}

graph *carry_row_shift(const graph *in, const struct rewrite_options *opt, struct rewrite_log *log)
{
    return carry_walk(in, carry, opt, log);
}
