/*
 * pair_exchanges.c -- exchanges that undo each other, or whose result is known without one.
 *
 *     all_gather(reduce_scatter(x))        ==>  all_reduce(x)
 *     reduce_scatter(all_gather(x))        ==>  P x             of P ranks, along one axis
 *     all_reduce(v)                        ==>  P v             where all ranks have the same v
 *
 * The same v is what an all_reduce or an all_gather of the group gave, a number, and what is computed of such
 * alone: of a leaf nobody knows. In: verified graph. Out: no such exchange. The first is exact; the others
 * are not: P equal addends are rounded on the way, unless P is a power of two.
 */
#include "exchanges.h"

enum { MOST_STEPS = 12 }; /* up from a value that may be the same on all ranks */

static bool is_same(const graph *g, int v, int group, int steps)
{
    const struct node *n = &g->node[v];
    if (n->op == OP_CONSTANT || n->op == OP_IOTA) return true;
    if (n->op == OP_ALL_REDUCE || n->op == OP_ALL_GATHER) return n->in[EXCHANGE_GROUP] == group;
    bool computes =
        n->op == OP_MAP || n->op == OP_CAST || n->op == OP_REDUCE || n->op == OP_MATMUL || op_is_view(n->op);
    if (!computes || !steps) return false;
    for (int i = 0; i < n->nin; i++)
        if (n->in[i] >= 0 && !is_same(g, n->in[i], group, steps - 1)) return false;
    return true;
}

/* What v, an exchange, is P times, or of an all_gather the sum of: a value of w->in; -1. */
static int known(const struct walk *w, int v)
{
    const graph *g = w->in;
    const struct node *n = &g->node[v];
    if (!op_is_exchange(n->op) || exchange_ranks(g, v) < 2) return -1;
    int x = n->in[EXCHANGE_X], group = n->in[EXCHANGE_GROUP];
    const struct node *of = &g->node[x];
    if (n->op == OP_ALL_REDUCE) return is_same(g, x, group, MOST_STEPS) ? x : -1;
    if (of->op != (n->op == OP_ALL_GATHER ? OP_REDUCE_SCATTER : OP_ALL_GATHER)) return -1;
    if (of->in[EXCHANGE_GROUP] != group || exchange_axis(of) != exchange_axis(n)) return -1;
    return n->op == OP_REDUCE_SCATTER || exchange_uses(w, x) == 1 ? of->in[EXCHANGE_X] : -1;
}

static bool matches(const struct walk *w, int v) { return known(w, v) >= 0; }

static int replace(struct walk *w, int v)
{
    const graph *g = w->in;
    int x = known(w, v), ranks = x < 0 ? 0 : exchange_ranks(g, v);
    if (x < 0) return RULE_COPY;
    if (g->node[v].op == OP_ALL_GATHER) {
        rewrite_note(w->log, "pair_exchanges", true, "%s: the parts of %s are put together by one all_reduce",
                     rewrite_name(g, v).s, rewrite_name(g, x).s);
        return exchange_make(w, OP_ALL_REDUCE, -1, w->map[x], v);
    }
    rewrite_note(w->log, "pair_exchanges", false, "%s: it is %d times %s, without %s", rewrite_name(g, v).s,
                 ranks, rewrite_name(g, x).s, node_text(&g->node[v]));
    return graph_map(w->out, "scale", w->map[x], -1, (float[]){(float)ranks});
}

graph *pair_exchanges(const graph *in, const struct rewrite_options *opt, struct rewrite_log *log)
{
    return exchange_walk(in, replace, opt, log, matches);
}
