/*
 * map_gathers.c -- maps run where the rows are, on one part of P, and narrow values travel.
 *
 *     f(all_gather(x))                  ==>  all_gather(f(x))                f with numbers beside x, if any
 *     f(all_gather(x), all_gather(y))   ==>  all_gather(f(x, y))             one exchange for two
 *     all_gather(cast(x))               ==>  cast(all_gather(x))             where the cast makes it wider
 *
 * f is a map or a cast, element by element, that makes nothing wider, where nobody else reads what is
 * gathered. One operand alone moves if a kernel computes it, which then does that, too. In: verified graph.
 * Out: no such map. Exact.
 */
#include "exchanges.h"

static bool is_number(const graph *g, int v) { return g->node[v].op == OP_CONSTANT; }

static int64_t bytes_of(const graph *g, int v) { return dtype_bytes(g->node[v].type.dtype, 1); }

/* The first gathered operand of map v, whose operands all are gathered alike, or are numbers; -1. */
static int gathered_operand(const struct walk *w, int v)
{
    const graph *g = w->in;
    const struct node *n = &g->node[v];
    int first = -1, count = 0;
    int64_t bytes = 0;
    if ((n->op != OP_MAP && n->op != OP_CAST) || n->nin > PRIM_MAX_INPUTS) return -1;
    for (int i = 0; i < n->nin; i++) {
        int x = n->in[i];
        if (x >= 0 && is_number(g, x)) continue;
        if (!exchange_once(w, x, OP_ALL_GATHER) || exchange_ranks(g, x) < 2) return -1;
        if (first >= 0 && (g->node[x].in[EXCHANGE_GROUP] != g->node[first].in[EXCHANGE_GROUP] ||
                           exchange_axis(&g->node[x]) != exchange_axis(&g->node[first])))
            return -1;
        struct type as = g->node[x].type;
        as.dtype = n->type.dtype;
        if (!type_equal(&as, &n->type)) return -1;
        if (first < 0) first = x;
        bytes += bytes_of(g, x), count++;
    }
    if (first < 0 || bytes_of(g, v) > bytes) return -1;
    return count > 1 || is_computed(g, g->node[first].in[EXCHANGE_X]) ? first : -1;
}

/* Does v gather what was cast to a wider dtype? */
static bool gathers_wide(const struct walk *w, int v)
{
    const graph *g = w->in;
    const struct node *n = &g->node[v];
    if (n->op != OP_ALL_GATHER || exchange_ranks(g, v) < 2) return false;
    const struct node *x = &g->node[n->in[EXCHANGE_X]];
    return x->op == OP_CAST && dtype_is_half(g->node[x->in[CAST_X]].type.dtype) && x->type.dtype == CODA_F32;
}

static bool matches(const struct walk *w, int v) { return gathered_operand(w, v) >= 0 || gathers_wide(w, v); }

static int widen_behind(struct walk *w, int v)
{
    const graph *g = w->in;
    const struct node *n = &g->node[v], *cast = &g->node[n->in[EXCHANGE_X]];
    rewrite_note(w->log, "map_gathers", true, "%s: %s is gathered before it is cast", rewrite_name(g, v).s,
                 rewrite_name(g, cast->in[CAST_X]).s);
    int y = exchange_make(w, OP_ALL_GATHER, exchange_axis(n), w->map[cast->in[CAST_X]], v);
    struct node made = *cast;
    made.in = &y;
    made.origin = -1;
    return y < 0 ? y : graph_append(w->out, &made);
}

static int replace(struct walk *w, int v)
{
    const graph *g = w->in;
    struct node made = g->node[v];
    int in[PRIM_MAX_INPUTS], first = gathered_operand(w, v);
    if (first < 0) return gathers_wide(w, v) ? widen_behind(w, v) : RULE_COPY;
    for (int i = 0; i < made.nin; i++) {
        int x = made.in[i];
        in[i] = w->map[is_number(g, x) ? x : g->node[x].in[EXCHANGE_X]];
    }
    rewrite_note(w->log, "map_gathers", true, "%s: %s is computed before it is gathered",
                 rewrite_name(g, v).s, node_text(&made));
    made.in = in;
    made.origin = -1;
    made.output = -1;
    return exchange_make(w, OP_ALL_GATHER, exchange_axis(&g->node[first]), graph_append(w->out, &made),
                         first);
}

graph *map_gathers(const graph *in, const struct rewrite_options *opt, struct rewrite_log *log)
{
    return exchange_walk(in, replace, opt, log, matches);
}
