/* walk.c -- a rule applied to each node of a graph, which rebuilds it beside the old one. */
#include "walk.h"

#include <stdlib.h>

/* What the rule makes of node n. Nothing, where a state would be read after it was written to, or might be
 * later, as the value has become a view of it. */
static int apply(struct walk *w, rewrite_rule *rule, int n)
{
    int nodes = w->out->nodes, events = w->log ? w->log->events : 0, v = rule(w, n);
    bool looks = v >= 0 && w->out->node[v].state >= 0 && w->in->node[n].state < 0;
    if (!looks && !w->out->stale) return v;
    graph_take_back(w->out, nodes);
    if (w->log) w->log->events = events;
    return RULE_COPY;
}

/* What a rule makes of a node is of its origin and scope; false when `out` is poisoned. */
static bool place(graph *out, int first, const struct node *old)
{
    const char *scope = old->scope;
    if (graph_scope(out, &scope) != CODA_OK)
        return graph_poison(out, CODA_E_MEMORY, "%s", fail_message()), false;
    for (int i = first; i < out->nodes; i++) {
        out->node[i].origin = old->origin;
        out->node[i].scope = scope;
    }
    return true;
}

/* Copies or replaces one node; false when `out` is poisoned. */
static bool step(struct walk *w, rewrite_rule *rule, int n)
{
    const struct node *old = &w->in->node[n];
    int before = w->out->nodes, v = apply(w, rule, n);
    if (v == RULE_COPY) v = graph_copy_node(w->out, w->in, n, w->map);
    else if (!place(w->out, before, old)) return false;
    if (v == RULE_DROP) return true;
    w->map[n] = v;
    if (v < 0) return false;
    if (type_agrees(&w->out->node[v].type, &old->type)) return true;
    graph_poison(w->out, CODA_E_INVALID, "rewrite: the type of %s changed", rewrite_name(w->in, n).s);
    return false;
}

static bool walk(struct walk *w, rewrite_rule *rule)
{
    for (int i = 0; i < w->in->nodes; i++) {
        w->map[i] = -1;
        if (!op_is_leaf(w->in->node[i].op)) continue;
        w->map[i] = graph_copy_node(w->out, w->in, i, w->map);
        if (w->map[i] < 0) return false;
    }
    for (int i = 0; i < w->in->nodes; i++)
        if (!op_is_leaf(w->in->node[i].op) && !step(w, rule, i)) return false;
    return graph_copy_outputs(w->out, w->in, w->map) == 0;
}

graph *rewrite_nothing(const graph *in) { return (graph *)(uintptr_t)in; }

int rewrite_needs_numbers(struct walk *w, const char *what)
{
    graph_poison(w->out, CODA_E_UNSUPPORTED, "rewrite: %s needs numbers for symbols", what);
    return RULE_FAILED;
}

float rewrite_part(struct walk *w, int64_t extent)
{
    if (dim_is_number(extent)) return 1.0f / (float)MAX(extent, 1);
    rewrite_needs_numbers(w, "a mean");
    return 0;
}

graph *rewrite_walk(const graph *in, rewrite_rule *rule, const struct rewrite_options *opt,
                    struct rewrite_log *log, void *ctx)
{
    struct walk w = {.in = in, .out = graph_like(in), .opt = opt, .log = log, .ctx = ctx};
    if (!w.out) return NULL;
    w.map = calloc((size_t)in->nodes + 1, sizeof *w.map);
    bool room = w.map && dims_copy(w.out->dims, in->dims);
    if (!room) graph_poison(w.out, CODA_E_MEMORY, "rewrite: out of memory");
    if (!room || !walk(&w, rule)) {
        if (w.out->status) fail(w.out->status, "%s", w.out->error);
        graph_free(w.out);
        w.out = NULL;
    }
    free(w.map);
    return w.out;
}
