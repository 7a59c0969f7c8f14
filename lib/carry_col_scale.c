/*
 * carry_col_scale.c -- folds a gain of the columns into the constant weight that meets it.
 *
 *     matmul(x g, W)  ==>  matmul(x, W g)       g [K] and W constant; g scales W along K
 *
 * Only where the caller lets constants fold; coda_prepare computes W g. Otherwise x g is written
 * beside x. In: verified graph. Out: no such matmul. Inexact: W g is rounded to W's dtype.
 */
#include "rewrite.h"

static int carry(struct walk *w, int v)
{
    const struct node *n = &w->in->node[v];
    if (n->op != OP_MATMUL) return RULE_COPY;
    struct layer l = layer_of(w->in, n->in[0]);
    if (l.kind != LAYER_COL_SCALE || !carry_folds(w, n->in[0]) || !carry_pays(w, n->in[0])) return RULE_COPY;
    bool kn = n->attr.i[0];
    int weight = graph_map(w->out, "mul", w->map[n->in[1]], carry_vector(w, l.factor, kn), NULL);
    rewrite_note(w->log, "carry_col_scale", false, "%s: the gain %s folds into %s", rewrite_name(w->in, v).s,
                 rewrite_name(w->in, l.factor).s, rewrite_weight(w->in, n->in[1]).s);
    return graph_matmul(w->out, w->map[l.base], weight, kn);
}

graph *carry_col_scale(const graph *in, const struct rewrite_options *opt, struct rewrite_log *log)
{
    return carry_walk(in, carry, opt, log);
}
