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

/* Copies a node, which a rule may replace; false when `out` is poisoned. */
static bool step(struct walk *w, rewrite_rule *rule, int n)
{
    const struct node *old = &w->in->node[n];
    int before = w->out->nodes, v = rule ? apply(w, rule, n) : RULE_COPY;
    if (v == RULE_COPY) v = graph_copy_node(w->out, w->in, n, w->map);
    else if (!place(w->out, before, old)) return false;
    if (v == RULE_DROP) return true;
    w->map[n] = v;
    if (v < 0) return false;
    if (type_agrees(&w->out->node[v].type, &old->type)) return true;
    graph_poison(w->out, CODA_E_INVALID, "rewrite: the type of %s changed", rewrite_name(w->in, n).s);
    return false;
}

/* Rebuilds `in`, where nodes below `first` stay as they are. */
static bool walk(struct walk *w, rewrite_rule *rule, int first)
{
    for (int i = 0; i < w->in->nodes; i++) {
        w->map[i] = -1;
        if (!op_is_leaf(w->in->node[i].op)) continue;
        w->map[i] = graph_copy_node(w->out, w->in, i, w->map);
        if (w->map[i] < 0) return false;
    }
    for (int i = 0; i < w->in->nodes; i++)
        if (!op_is_leaf(w->in->node[i].op) && !step(w, i < first ? NULL : rule, i)) return false;
    return graph_copy_outputs(w->out, w->in, w->map) == 0;
}

/* ---- Nodes before the first match ---- */

static bool leaves_come_first(const graph *g)
{
    int n = 0;
    while (n < g->nodes && op_is_leaf(g->node[n].op)) n++;
    return n == g->leaves;
}

/* Does the rule replace node n, where all before it stayed? Then it has noted nothing, as its nodes were
 * refused, and may be asked again. */
static bool matches(struct walk *w, rewrite_rule *rule, int n)
{
    int events = w->log ? w->log->events : 0;
    w->out->nodes = n;
    if (apply(w, rule, n) == RULE_COPY) return w->out->status != CODA_OK;
    if (w->log) w->log->events = events;
    return true;
}

/*
 * The first node that the rule replaces, or in->nodes; -1 with the message set. Up to there the result would
 * be equal to `in`, value by value, so the rule reads that in its place.
 */
static int first_match(struct walk *w, rewrite_rule *rule)
{
    graph same = *w->in;
    int n = w->in->leaves;
    if (!leaves_come_first(w->in)) return 0;
    same.arena = (struct arena){0};
    same.closed = true;
    w->out = &same;
    for (int i = 0; i < w->in->nodes; i++) w->map[i] = i < n ? i : -1;
    for (; n < w->in->nodes && !matches(w, rule, n); n++) w->map[n] = n;
    arena_free(&same.arena);
    w->out = NULL;
    if (same.status) fail(same.status, "%s", same.error);
    return same.status ? -1 : n;
}

/* ---- Passes ---- */

graph *rewrite_nothing(const graph *in) { return (graph *)(uintptr_t)in; }

static graph *rebuild(struct walk *w, rewrite_rule *rule, int first)
{
    w->out = graph_like(w->in);
    if (!w->out) return NULL;
    bool room = dims_copy(w->out->dims, w->in->dims);
    if (!room) graph_poison(w->out, CODA_E_MEMORY, "rewrite: out of memory");
    if (room && walk(w, rule, first)) return w->out;
    if (w->out->status) fail(w->out->status, "%s", w->out->error);
    graph_free(w->out);
    return NULL;
}

graph *rewrite_walk(const graph *in, rewrite_rule *rule, const struct rewrite_options *opt,
                    struct rewrite_log *log, void *ctx)
{
    struct walk w = {.in = in, .opt = opt, .log = log, .ctx = ctx};
    w.map = calloc((size_t)in->nodes + 1, sizeof *w.map);
    if (!w.map) return fail(CODA_E_MEMORY, "rewrite: out of memory"), NULL;
    int first = rule ? first_match(&w, rule) : in->nodes;
    bool same = rule && first == in->nodes;
    graph *out = same ? rewrite_nothing(in) : first < 0 ? NULL : rebuild(&w, rule, first);
    free(w.map);
    return out;
}

/* ---- What rules share ---- */

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
