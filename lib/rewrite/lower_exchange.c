/*
 * lower_exchange.c -- exchanges of one rank, which has all there is already.
 *
 *     all_reduce(x) = reduce_scatter(x) = all_gather(x)  ==>  x        of a group of one rank
 *
 * In: verified graph. Out: no exchange of one rank. Exact.
 */
#include "walk.h"

static int lower(struct walk *w, int v)
{
    const struct node *n = &w->in->node[v];
    if (!op_is_exchange(n->op) || w->in->node[n->in[EXCHANGE_GROUP]].attr.group.ranks > 1) return RULE_COPY;
    rewrite_note(w->log, "lower_exchange", true, "%s: one rank has all of %s", rewrite_name(w->in, v).s,
                 rewrite_name(w->in, n->in[EXCHANGE_X]).s);
    return w->map[n->in[EXCHANGE_X]];
}

graph *lower_exchange(const graph *in, const struct rewrite_options *opt, struct rewrite_log *log)
{
    return rewrite_walk(in, lower, opt, log, NULL);
}
