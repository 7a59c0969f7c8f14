/*
 * lower_softmax.c -- softmax as one online statistic and one map.
 *
 *     softmax(x)  ==>  exp_sub(x, log_sum_exp(x))           e^(x - l),  l = log sum e^x
 *
 * In: verified graph. Out: no softmax. Inexact: it divides in the exponent.
 */
#include "rewrite.h"

static int lower(struct walk *w, int v)
{
    const struct node *n = &w->in->node[v];
    if (n->op != OP_SOFTMAX) return RULE_COPY;
    int x = w->map[n->in[0]];
    rewrite_note(w->log, "lower_softmax", false, "%s: softmax of %s is exp(%s - log_sum_exp)",
                 rewrite_name(w->in, v).s, rewrite_name(w->in, n->in[0]).s, rewrite_name(w->in, n->in[0]).s);
    return graph_map(w->out, "exp_sub", x, graph_reduce(w->out, "log_sum_exp", x, -1), NULL);
}

graph *lower_softmax(const graph *in, const struct rewrite_options *opt, struct rewrite_log *log)
{
    return rewrite_walk(in, lower, opt, log, NULL);
}
