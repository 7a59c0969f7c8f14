/*
 * commute_col_scale.c -- folds a gain of the columns into the constant weight that meets it.
 *
 *     matmul(x g, W)  ==>  matmul(x, W g)             g [K] and W constant; g scales W along K
 *     matmul(x g, W)  ==>  matmul(x, W g / s) s       in f16, s [N] the root mean square of W g over K
 *
 * Only where the caller lets constants fold; coda_prepare computes W g. Otherwise x g is written
 * beside x. In f16 W g might be infinite or 0 where x g is neither: W g / s is not, and rounded no more.
 * In: verified graph. Out: no such matmul. Inexact: W g is rounded to W's dtype.
 */
#include "commute.h"

static int carry(struct walk *w, int v)
{
    const struct node *n = &w->in->node[v];
    if (n->op != OP_MATMUL) return RULE_COPY;
    struct layer l = layer_of(w->in, n->in[MATMUL_X]);
    if (l.kind != LAYER_COL_SCALE || !carry_folds(w, n->in[MATMUL_X]) || !carry_pays(w, n->in[MATMUL_X]))
        return RULE_COPY;
    bool kn = n->attr.matmul.kn;
    rewrite_note(w->log, "carry_col_scale", false, "%s: the gain %s folds into %s", rewrite_name(w->in, v).s,
                 rewrite_name(w->in, l.factor).s, rewrite_weight(w->in, n->in[MATMUL_W]).s);
    int weight = w->map[n->in[MATMUL_W]], factor;
    if (w->in->node[n->in[MATMUL_W]].type.dtype == CODA_F16 && !w->opt->fast_f16) {
        if (kn) weight = carry_transpose(w, weight);
        weight = carry_level(w, weight, carry_vector(w, l.factor, false), &factor);
        int y = carry_product(w, v, w->map[l.base], weight, false);
        return carry_result(w, v, graph_map(w->out, "mul", y, factor, NULL));
    }
    weight = graph_map(w->out, "mul", weight, carry_vector(w, l.factor, kn), NULL);
    struct node product = *n;
    product.in = (int[]){w->map[l.base], weight};
    return graph_append(w->out, &product);
}

graph *carry_col_scale(const graph *in, const struct rewrite_options *opt, struct rewrite_log *log)
{
    return carry_walk(in, carry, opt, log);
}
