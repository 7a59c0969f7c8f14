/*
 * commute_row_scale.c -- carries a factor of the rows past the matmul that reads them (delayed rstd).
 *
 *     matmul(x r, W)  ==>  matmul(x, W) r       r [..,1], or a scalar; also x / r
 *     (x r) g         ==>  (x g) r              where the gain g [K] cannot go into W
 *
 * The matmul need not wait for r, which may be a statistic of all of x. carry_pays() decides: above
 * all, x times a gain is left behind only where a GEMM's epilogue can write it beside x. Without
 * folding, a norm with gain of a leaf, or of what is stored whole, stays one rows kernel.
 * In: verified graph. Out: no such matmul or product. Inexact: rounding moves.
 */
#include "commute.h"

/* (x r) g  ==>  (x g) r, if every reader lets r move on past its matmul. */
static int commute(struct walk *w, int v)
{
    struct layer l = layer_of(w->in, v);
    if (l.kind != LAYER_COL_SCALE || carry_folds(w, v) || !carry_pays(w, v)) return RULE_COPY;
    struct layer below = layer_of(w->in, l.base);
    if (below.kind != LAYER_ROW_SCALE) return RULE_COPY;
    rewrite_note(w->log, "carry_row_scale", false, "%s: the gain %s goes before %s", rewrite_name(w->in, v).s,
                 rewrite_name(w->in, l.factor).s, rewrite_meaning(w->in, below.factor).s);
    return layer_apply(w, l.base, layer_apply(w, v, w->map[below.base]));
}

static int carry(struct walk *w, int v)
{
    const struct node *n = &w->in->node[v];
    if (n->op != OP_MATMUL) return commute(w, v);
    struct layer l = layer_of(w->in, n->in[MATMUL_X]);
    if (l.kind != LAYER_ROW_SCALE || !carry_pays(w, n->in[MATMUL_X])) return RULE_COPY;
    rewrite_note(w->log, "carry_row_scale", false, "%s: %s moves past the matmul by %s",
                 rewrite_name(w->in, v).s, rewrite_meaning(w->in, l.factor).s,
                 rewrite_weight(w->in, n->in[MATMUL_W]).s);
    int y = carry_product(w, v, w->map[l.base], w->map[n->in[MATMUL_W]], n->attr.matmul.kn);
    return carry_result(w, v, layer_apply(w, n->in[MATMUL_X], y));
}

graph *carry_row_scale(const graph *in, const struct rewrite_options *opt, struct rewrite_log *log)
{
    return carry_walk(in, carry, opt, log);
}
