/*
 * lower_log_softmax.c -- the logarithm of a softmax as two readings of one online state.
 *
 *     log_softmax(x)  ==>  (x - m) - l        m = exp_max(x),  l = log_exp_sum(x) = log(sum e^(x - m))
 *
 * Subtracted one after the other: m + l would lose l where |m| is large. In: verified graph. Out: no
 * log_softmax. Inexact: the sum is taken online.
 */
#include "walk.h"

static int lower(struct walk *w, int v)
{
    const struct node *n = &w->in->node[v];
    if (n->op != OP_LOG_SOFTMAX) return RULE_COPY;
    int x = w->map[n->in[LOG_SOFTMAX_X]], most = graph_reduce(w->out, "exp_max", x, -1);
    int sum = graph_reduce(w->out, "log_exp_sum", x, -1);
    struct words name = rewrite_name(w->in, n->in[LOG_SOFTMAX_X]);
    rewrite_note(w->log, "lower_log_softmax", false, "%s: log_softmax of %s is %s - max - log(sum)",
                 rewrite_name(w->in, v).s, name.s, name.s);
    return graph_map(w->out, "sub", graph_map(w->out, "sub", x, most, NULL), sum, NULL);
}

graph *lower_log_softmax(const graph *in, const struct rewrite_options *opt, struct rewrite_log *log)
{
    return rewrite_walk(in, lower, opt, log, NULL);
}
