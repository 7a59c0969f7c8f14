/*
 * concat_map.c -- scales the rows of what is put together part by part.
 *
 *     concat(a, b) s  ==>  concat(a s, b s)        s of the rows, or a constant
 *
 * so that whoever computes a and b stores them scaled. Only where the concat has no other reader, and a part
 * is computed element by element, or by a product: else it would be in memory in any case. In: verified
 * graph. Out: no such product. Exact.
 */
#include "commute.h"
#include "factors.h"

static bool matches(const struct walk *w, int v)
{
    const graph *g = w->in;
    const struct live *live = w->ctx;
    struct layer l = live->is[v] ? layer_of(g, v) : (struct layer){0};
    if (l.kind != LAYER_ROW_SCALE) return false;
    const struct node *c = &g->node[l.base];
    return c->op == OP_CONCAT && c->attr.concat.axis == c->type.rank - 1 && live_uses(live, l.base) == 1 &&
           c->output < 0 && is_computed(g, l.base);
}

static int replace(struct walk *w, int v)
{
    const graph *g = w->in;
    if (!matches(w, v)) return RULE_COPY;
    int base = layer_of(g, v).base;
    const struct node *c = &g->node[base];
    rewrite_note(w->log, "concat_map", true, "%s: each part of %s is scaled by itself", rewrite_name(g, v).s,
                 rewrite_name(g, base).s);
    struct node n = *c;
    n.in = graph_map_operands(w->out, c, w->map);
    if (!n.in) return RULE_FAILED;
    for (int i = 0; i < c->nin; i++)
        if ((n.in[i] = layer_apply(w, v, n.in[i])) < 0) return RULE_FAILED;
    n.origin = -1;
    return graph_append(w->out, &n);
}

graph *concat_map(const graph *in, const struct rewrite_options *opt, struct rewrite_log *log)
{
    return live_walk(in, replace, opt, log, matches, NULL);
}
