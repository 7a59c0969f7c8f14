/* carry.c -- nodes that rules of commute.h append: a product of what was carried past it, and what becomes of
 * weights and vectors on the way. */
#include "commute.h"

/* ---- Products ---- */

int carry_product(struct walk *w, int v, int x, int weight, bool kn)
{
    const struct node *old = &w->in->node[v];
    bool wide = old->attr.matmul.f32 || (old->type.dtype == CODA_F16 && !w->opt->fast_f16);
    struct node n = {
        .op = OP_MATMUL, .nin = 2, .in = (int[]){x, weight}, .attr.matmul = {kn, wide}, .origin = -1};
    return graph_append(w->out, &n);
}

int carry_as(struct walk *w, int v, coda_dtype t)
{
    struct node n = {.op = OP_CAST, .nin = 1, .in = &v, .attr.cast.to = t, .origin = -1};
    if (v < 0 || w->out->node[v].type.dtype == t) return v;
    return graph_append(w->out, &n);
}

int carry_result(struct walk *w, int v, int y) { return carry_as(w, y, w->in->node[v].type.dtype); }

/* ---- Constants ---- */

int carry_vector(struct walk *w, int v, bool kn)
{
    const struct type *t = &w->in->node[v].type;
    int64_t k = type_columns(t);
    if (!kn && t->rank == 1) return w->map[v];
    return graph_reshape(w->out, w->map[v], kn ? 2 : 1, (int64_t[]){k, 1});
}

int carry_transpose(struct walk *w, int weight)
{
    if (weight < 0) return RULE_FAILED;
    int rank = w->out->node[weight].type.rank;
    struct node n = {.op = OP_TRANSPOSE, .nin = 1, .in = &weight, .origin = -1};
    for (int d = 0; d < rank; d++) n.attr.transpose.perm[d] = d < rank - 2 ? d : 2 * rank - 3 - d;
    return graph_append(w->out, &n);
}

/* One value for each row of a weight, as the columns of its product have it: [N,1] as [N], or [..,1,N]. */
static int for_columns(struct walk *w, int statistic)
{
    if (statistic < 0) return RULE_FAILED;
    struct type t = w->out->node[statistic].type;
    int64_t n = t.dim[t.rank - 2];
    if (t.rank == 2) return graph_reshape(w->out, statistic, 1, &n);
    t.dim[t.rank - 2] = 1;
    t.dim[t.rank - 1] = n;
    return graph_reshape(w->out, statistic, t.rank, t.dim);
}

int carry_weight_sum(struct walk *w, int weight, bool kn)
{
    if (kn) weight = carry_transpose(w, weight);
    return for_columns(w, graph_reduce(w->out, "sum", weight, -1));
}

/* With s the mean square of W g over K: W g / sqrt(s), and sqrt(s) = s / sqrt(s). */
int carry_level(struct walk *w, int weight, int vector, int *factor)
{
    if (weight < 0) return *factor = RULE_FAILED;
    coda_dtype t = w->out->node[weight].type.dtype;
    float part = rewrite_part(w, type_columns(&w->out->node[weight].type));
    int gained = graph_map(w->out, "mul", carry_as(w, weight, CODA_F32), vector, NULL);
    int squares = graph_reduce(w->out, "sum_sq", gained, -1);
    int inverse = graph_map(w->out, "rsqrt_mean", squares, -1, (float[]){part, 1e-37f});
    int root = graph_map(w->out, "mul", graph_map(w->out, "scale", squares, -1, &part), inverse, NULL);
    *factor = for_columns(w, root);
    return carry_as(w, graph_map(w->out, "mul", gained, inverse, NULL), t);
}
