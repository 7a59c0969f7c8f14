/*
 * dce.c -- drops what neither an output nor a state depends on. Leaves stay, because coda_run's arguments are
 * counted by them. Exchanges between ranks that are left come one behind the other. Exact.
 */
#include "walk.h"

#include <stdlib.h>

/* Whether an exchange comes behind another one than the last of its group that is needed. */
static bool is_out_of_order(const graph *g, int v, const bool *needed)
{
    const struct node *n = &g->node[v];
    int before = n->nin > EXCHANGE_BEFORE ? n->in[EXCHANGE_BEFORE] : -1, last = v - 1;
    if (!op_is_exchange(n->op)) return false;
    while (last >= 0 && (!needed[last] || !op_is_exchange(g->node[last].op) ||
                         g->node[last].in[EXCHANGE_GROUP] != n->in[EXCHANGE_GROUP]))
        last--;
    return before != last;
}

static int drop(struct walk *w, int v)
{
    const bool *needed = w->ctx;
    if (!needed[v]) return RULE_DROP;
    if (!is_out_of_order(w->in, v, needed)) return RULE_COPY;
    struct node n = w->in->node[v];
    int group = w->map[n.in[EXCHANGE_GROUP]]; /* behind the last one that is there */
    int in[] = {w->map[n.in[EXCHANGE_X]], group, graph_last_exchange(w->out, group)};
    n.in = in;
    n.nin = EXCHANGE_OPERANDS;
    return graph_append(w->out, &n);
}

/* What an exchange comes behind is not needed for that. */
static int operands(const struct node *n) { return op_is_exchange(n->op) ? EXCHANGE_BEFORE : n->nin; }

static int mark_needed(const graph *g, bool *needed)
{
    int dropped = 0;
    for (int i = 0; i < g->outputs; i++) needed[g->output[i].value] = true;
    for (int v = g->nodes - 1; v >= 0; v--) {
        const struct node *n = &g->node[v];
        if (op_is_version(n->op)) needed[v] = true;
        dropped += !needed[v] && !op_is_leaf(n->op);
        for (int i = 0; i < operands(n) && needed[v]; i++)
            if (n->in[i] >= 0) needed[n->in[i]] = true;
    }
    return dropped;
}

static bool keeps_order(const graph *g, const bool *needed)
{
    for (int v = 0; v < g->nodes; v++)
        if (needed[v] && is_out_of_order(g, v, needed)) return false;
    return true;
}

graph *dead(const graph *in, const struct rewrite_options *opt, struct rewrite_log *log)
{
    bool *needed = calloc((size_t)in->nodes + 1, sizeof *needed);
    if (!needed) {
        fail(CODA_E_MEMORY, "rewrite: out of memory");
        return NULL;
    }
    int dropped = mark_needed(in, needed);
    if (!dropped && keeps_order(in, needed)) {
        free(needed);
        return rewrite_nothing(in);
    }
    if (dropped) rewrite_note(log, "dead", true, "dropped %d unread values", dropped);
    else rewrite_note(log, "dead", true, "exchanges come one behind the other");
    graph *out = rewrite_walk(in, drop, opt, log, needed);
    free(needed);
    return out;
}
