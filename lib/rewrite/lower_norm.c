/*
 * lower_norm.c -- RMSNorm and LayerNorm as a row statistic and what it scales.
 *
 *     rms_norm(x, g)      ==>  x r g            r = rsqrt_mean(sum_sq(x))
 *     layer_norm(x, g, b) ==>  (x - mu) r g + b r = rsqrt_mean(m2(x)),  mu = mean(x)
 *
 * m2 is the sum of squared deviations from the row's mean: it does not cancel where the mean is
 * large, which does not overflow where the row's sum would. In: verified graph. Out: no norms. Inexact: both
 * are summed in another order.
 */
#include "walk.h"

/* 1 / sqrt(statistic / N + eps) for each row. */
static int row_factor(struct walk *w, const struct node *n, const char *statistic, int x, float eps)
{
    int s = graph_reduce(w->out, statistic, x, -1);
    return graph_map(w->out, "rsqrt_mean", s, -1, (float[]){rewrite_part(w, type_columns(&n->type)), eps});
}

static int lower(struct walk *w, int v)
{
    const struct node *n = &w->in->node[v];
    if (n->op != OP_RMS_NORM && n->op != OP_LAYER_NORM) return RULE_COPY;
    bool layer = n->op == OP_LAYER_NORM;
    float eps = layer ? n->attr.layer_norm.eps : n->attr.rms_norm.eps;
    int x = w->map[n->in[LAYER_NORM_X]], gain = n->in[LAYER_NORM_GAIN], bias = n->in[LAYER_NORM_BIAS];
    int y = layer ? graph_map(w->out, "sub", x, graph_reduce(w->out, "mean", x, -1), NULL) : x;
    y = graph_map(w->out, "mul", y, row_factor(w, n, layer ? "m2" : "sum_sq", x, eps), NULL);
    if (gain >= 0) y = graph_map(w->out, "mul", y, w->map[gain], NULL);
    if (bias >= 0) y = graph_map(w->out, "add", y, w->map[bias], NULL);
    rewrite_note(w->log, "lower_norm", false, "%s: %s of %s is a row statistic and what it scales",
                 rewrite_name(w->in, v).s, op_info[n->op].text, rewrite_name(w->in, n->in[LAYER_NORM_X]).s);
    return y;
}

graph *lower_norm(const graph *in, const struct rewrite_options *opt, struct rewrite_log *log)
{
    return rewrite_walk(in, lower, opt, log, NULL);
}
