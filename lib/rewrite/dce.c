/*
 * dce.c -- drops what neither an output nor a state depends on. Leaves stay, because coda_run's arguments are
 * counted by them. Exact.
 */
#include "walk.h"

#include <stdlib.h>

static int drop(struct walk *w, int n)
{
    const bool *needed = w->ctx;
    return needed[n] ? RULE_COPY : RULE_DROP;
}

static int mark_needed(const graph *g, bool *needed)
{
    int dropped = 0;
    for (int i = 0; i < g->outputs; i++) needed[g->output[i].value] = true;
    for (int v = g->nodes - 1; v >= 0; v--) {
        const struct node *n = &g->node[v];
        if (op_is_version(n->op)) needed[v] = true;
        dropped += !needed[v] && !op_is_leaf(n->op);
        for (int i = 0; i < n->nin && needed[v]; i++)
            if (n->in[i] >= 0) needed[n->in[i]] = true;
    }
    return dropped;
}

graph *dead(const graph *in, const struct rewrite_options *opt, struct rewrite_log *log)
{
    bool *needed = calloc((size_t)in->nodes + 1, sizeof *needed);
    if (!needed) {
        fail(CODA_E_MEMORY, "rewrite: out of memory");
        return NULL;
    }
    int dropped = mark_needed(in, needed);
    if (!dropped) {
        free(needed);
        return rewrite_nothing(in);
    }
    rewrite_note(log, "dead", true, "dropped %d unread values", dropped);
    graph *out = rewrite_walk(in, drop, opt, log, needed);
    free(needed);
    return out;
}
