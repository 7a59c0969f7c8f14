/*
 * commute_weight_scale.c -- takes the scale of a small weight's rows behind the product.
 *
 *     matmul(x, W s)     ==>  matmul(x, W) s^T       W [N,K] of 8 bits, or packed, s [N,1], or one number
 *     matmul_kn(x, W s)  ==>  matmul_kn(x, W) s      W [K,N], s [N]
 *
 * and so for a quotient. W s would be a copy of W in more bits, in memory; the product's epilogue multiplies
 * by s for nothing. Also where nothing fuses, as maps read nothing packed. In: verified graph. Out: no
 * such product. Inexact: W s is not rounded.
 */
#include "commute.h"

#include "guards.h"

/* Does the value have the bits of a weight of 8 bits, or of a packed one? */
static bool is_small(const graph *g, int v)
{
    const struct node *n = &g->node[v];
    while (op_is_view(n->op) || n->op == OP_CAST) n = &g->node[n->in[0]];
    return node_is_small(n);
}

static bool is_number(const struct type *t) { return extents_equal(type_elements(t), 1); }

/* The scale that w is its base times, by the columns of the product. */
static struct layer scale_of(const graph *g, const struct node *product)
{
    struct layer l = layer_of(g, product->in[MATMUL_W]);
    enum layer_kind by = product->attr.matmul.kn ? LAYER_COL_SCALE : LAYER_ROW_SCALE;
    bool number = l.kind == LAYER_ROW_SCALE && (l.factor < 0 || is_number(&g->node[l.factor].type));
    if ((l.kind != by && !number) || !is_small(g, l.base)) l.kind = LAYER_NONE;
    return l;
}

/* [N,1] as [N], [..,N,1] as [..,1,N]. */
static int as_columns(struct walk *w, int factor, bool kn)
{
    const struct node *f = &w->in->node[factor];
    if (kn || f->type.rank < 2 || is_number(&f->type)) return w->map[factor];
    struct type t = f->type;
    t.dim[t.rank - 1] = t.dim[t.rank - 2];
    t.dim[t.rank - 2] = 1;
    return t.rank == 2 ? graph_reshape(w->out, w->map[factor], 1, &t.dim[1])
                       : graph_reshape(w->out, w->map[factor], t.rank, t.dim);
}

static int carry(struct walk *w, int v)
{
    const struct node *n = &w->in->node[v];
    struct layer l = {LAYER_NONE, -1, -1};
    if (n->op == OP_MATMUL) l = scale_of(w->in, n);
    if (l.kind == LAYER_NONE) return RULE_COPY;
    rewrite_note(w->log, "carry_weight_scale", false, "%s: %s comes behind the product by %s",
                 rewrite_name(w->in, v).s, rewrite_meaning(w->in, l.factor).s,
                 rewrite_weight(w->in, l.base).s);
    int y = carry_product(w, v, w->map[n->in[MATMUL_X]], w->map[l.base], n->attr.matmul.kn);
    struct node scale = w->in->node[n->in[MATMUL_W]];
    scale.in = (int[]){y, l.factor < 0 ? -1 : as_columns(w, l.factor, n->attr.matmul.kn)};
    scale.origin = -1;
    if (y < 0 || (l.factor >= 0 && scale.in[1] < 0)) return RULE_FAILED;
    return carry_result(w, v, graph_append(w->out, &scale));
}

graph *carry_weight_scale(const graph *in, const struct rewrite_options *opt, struct rewrite_log *log)
{
    for (int v = 0; v < in->nodes; v++)
        if (in->node[v].op == OP_MATMUL && scale_of(in, &in->node[v]).kind != LAYER_NONE)
            return rewrite_walk(in, carry, opt, log, NULL);
    return rewrite_nothing(in);
}
