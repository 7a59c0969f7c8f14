/*
 * lower_softmax.c -- softmax as two readings of one online state and what they weigh.
 *
 *     softmax(x)  ==>  exp_sub(x, m) r        m = exp_max(x),  r = rcp(exp_sum(x)) = 1 / sum e^(x - m)
 *
 * One number for both, m + log(sum), would lose the logarithm where |m| is large: the row would not sum to 1.
 * In: verified graph. Out: no softmax. Inexact: the sum is taken online.
 */
#include "walk.h"

static int lower(struct walk *w, int v)
{
    const struct node *n = &w->in->node[v];
    if (n->op != OP_SOFTMAX) return RULE_COPY;
    int x = w->map[n->in[SOFTMAX_X]], most = graph_reduce(w->out, "exp_max", x, -1);
    int factor = graph_map(w->out, "rcp", graph_reduce(w->out, "exp_sum", x, -1), -1, NULL);
    struct words name = rewrite_name(w->in, n->in[SOFTMAX_X]);
    rewrite_note(w->log, "lower_softmax", false, "%s: softmax of %s is exp(%s - max) / sum",
                 rewrite_name(w->in, v).s, name.s, name.s);
    return graph_map(w->out, "mul", graph_map(w->out, "exp_sub", x, most, NULL), factor, NULL);
}

graph *lower_softmax(const graph *in, const struct rewrite_options *opt, struct rewrite_log *log)
{
    return rewrite_walk(in, lower, opt, log, NULL);
}
