/* exchanges.c -- what the passes ask of exchanges. */
#include "exchanges.h"

int exchange_axis(const struct node *n)
{
    return n->op == OP_ALL_GATHER       ? (int)n->attr.all_gather.axis
           : n->op == OP_REDUCE_SCATTER ? (int)n->attr.reduce_scatter.axis
                                        : -1;
}

int exchange_ranks(const graph *g, int v)
{
    return (int)g->node[g->node[v].in[EXCHANGE_GROUP]].attr.group.ranks;
}

bool exchange_alike(const graph *g, int a, int b)
{
    const struct node *x = &g->node[a], *y = &g->node[b];
    return a != b && x->op == y->op && x->in[EXCHANGE_GROUP] == y->in[EXCHANGE_GROUP] &&
           exchange_axis(x) == exchange_axis(y) && type_equal(&x->type, &y->type);
}

int exchange_uses(const struct walk *w, int v)
{
    const struct live *live = w->ctx;
    int n = w->in->node[v].output >= 0;
    for (int i = live->uses.at[v]; i < live->uses.at[v + 1]; i++) {
        const struct use *u = &live->uses.use[i];
        bool behind = op_is_exchange(w->in->node[u->node].op) && u->operand == EXCHANGE_BEFORE;
        n += live->is[u->node] && !behind;
    }
    return n;
}

bool exchange_once(const struct walk *w, int v, enum op op)
{
    return v >= 0 && w->in->node[v].op == op && exchange_uses(w, v) == 1;
}

int exchange_make(struct walk *w, enum op op, int axis, int x, int like)
{
    int group = w->map[w->in->node[like].in[EXCHANGE_GROUP]];
    int in[] = {x, group, graph_last_exchange(w->out, group)};
    struct node n = {.op = op, .in = in, .nin = EXCHANGE_OPERANDS, .origin = -1};
    if (x < 0) return RULE_FAILED;
    if (op == OP_ALL_GATHER) n.attr.all_gather.axis = axis;
    if (op == OP_REDUCE_SCATTER) n.attr.reduce_scatter.axis = axis;
    return graph_append(w->out, &n);
}

graph *exchange_walk(const graph *in, rewrite_rule *rule, const struct rewrite_options *opt,
                     struct rewrite_log *log, bool (*matches)(const struct walk *w, int v))
{
    for (int v = 0; v < in->nodes; v++)
        if (op_is_exchange(in->node[v].op) && exchange_ranks(in, v) > 1)
            return live_walk(in, rule, opt, log, matches, NULL);
    return rewrite_nothing(in);
}
