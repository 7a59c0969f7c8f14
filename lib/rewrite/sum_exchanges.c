/*
 * sum_exchanges.c -- exchanges are linear, so sums of what they give are one exchange of a sum.
 *
 *     all_reduce(a) + all_reduce(b)        ==>  all_reduce(a + b)
 *     (x + all_reduce(a)) + all_reduce(b)  ==>  x + all_reduce(a + b)
 *     all_reduce(z) + all_gather(x)        ==>  all_gather(reduce_scatter(z) + x)
 *     all_reduce(z) times a number         ==>  all_reduce(z times it)
 *
 * reduce_scatter likewise; a difference likewise, but in the second. Attention and an MLP beside each other
 * have one exchange, rows' work runs where the rows are, and a gradient's mean is taken by the product that
 * makes it. Only where nobody else reads what an exchange gives. In: verified graph. Out: no such sum.
 * Inexact: another order, another rounding.
 */
#include "exchanges.h"

#include <string.h>

struct found {
    enum { SUM_NONE, SUM_ALIKE, SUM_BEHIND, SUM_GATHERED, SUM_SCALED } what;
    int a, b;  /* the exchanges; of SUM_GATHERED the sum and what is gathered */
    int other; /* of SUM_BEHIND: x */
};

static bool is_map(const struct node *n, const char *name)
{
    return n->op == OP_MAP && !strcmp(n->prim->name, name);
}

/* A sum over ranks that one operand reads, of a value of v's type. */
static bool is_sum_read_once(const struct walk *w, int x, const struct type *t)
{
    return (exchange_once(w, x, OP_ALL_REDUCE) || exchange_once(w, x, OP_REDUCE_SCATTER)) &&
           type_equal(&w->in->node[x].type, t) && exchange_ranks(w->in, x) > 1;
}

/* x + b, where v adds sum `a` to that. */
static bool find_behind(const struct walk *w, int v, int sum, int a, struct found *f)
{
    const struct node *n = &w->in->node[sum];
    const struct live *live = w->ctx;
    if (!is_map(n, "add") || live_uses(live, sum) != 1 || n->output >= 0) return false;
    for (int i = 0; i < 2; i++) {
        int b = n->in[i], other = n->in[1 - i];
        if (!is_sum_read_once(w, b, &w->in->node[v].type) || !exchange_alike(w->in, a, b)) continue;
        if (!type_equal(&w->in->node[other].type, &w->in->node[v].type)) continue;
        *f = (struct found){SUM_BEHIND, b, a, other};
        return true;
    }
    return false;
}

static struct found find(const struct walk *w, int v)
{
    const graph *g = w->in;
    const struct node *n = &g->node[v];
    struct found f = {.what = SUM_NONE};
    if (is_map(n, "scale") && is_sum_read_once(w, n->in[0], &n->type) &&
        is_computed(g, g->node[n->in[0]].in[EXCHANGE_X]))
        return (struct found){SUM_SCALED, n->in[0], -1, -1};
    if (!is_map(n, "add") && !is_map(n, "sub")) return f;
    int a = n->in[0], b = n->in[1];
    bool first = is_sum_read_once(w, a, &n->type), second = is_sum_read_once(w, b, &n->type);
    if (first && second && exchange_alike(g, a, b)) return (struct found){SUM_ALIKE, a, b, -1};
    for (int i = 0; i < 2; i++) {
        int z = n->in[i], x = n->in[1 - i];
        if (!(i ? second : first)) continue;
        if (is_map(n, "add") && find_behind(w, v, x, z, &f)) return f;
        if (g->node[z].op == OP_ALL_REDUCE && exchange_once(w, x, OP_ALL_GATHER) &&
            g->node[x].in[EXCHANGE_GROUP] == g->node[z].in[EXCHANGE_GROUP] &&
            type_equal(&g->node[x].type, &n->type))
            return (struct found){SUM_GATHERED, z, x, -1};
    }
    return f;
}

static bool matches(const struct walk *w, int v) { return find(w, v).what != SUM_NONE; }

/* What exchange e exchanges, in w->out. */
static int brought(const struct walk *w, int e) { return w->map[w->in->node[e].in[EXCHANGE_X]]; }

static int gathered(struct walk *w, int v, const struct found *f)
{
    const struct node *n = &w->in->node[v];
    int axis = exchange_axis(&w->in->node[f->b]);
    int part = exchange_make(w, OP_REDUCE_SCATTER, axis, brought(w, f->a), f->a), x = brought(w, f->b);
    if (part < 0) return part;
    int sum =
        graph_map(w->out, n->prim->name, n->in[0] == f->a ? part : x, n->in[0] == f->a ? x : part, NULL);
    return exchange_make(w, OP_ALL_GATHER, axis, sum, f->b);
}

static int replace(struct walk *w, int v)
{
    const graph *g = w->in;
    const struct node *n = &g->node[v];
    struct found f = find(w, v);
    if (f.what == SUM_NONE) return RULE_COPY;
    const char *word = node_text(&g->node[f.a]);
    int axis = exchange_axis(&g->node[f.a]);
    if (f.what == SUM_SCALED) {
        rewrite_note(w->log, "sum_exchanges", false, "%s: %s is multiplied by %g ahead of %s",
                     rewrite_name(g, v).s, rewrite_name(g, g->node[f.a].in[EXCHANGE_X]).s,
                     (double)n->attr.map.param[0], word);
        int x = graph_map(w->out, "scale", brought(w, f.a), -1, n->attr.map.param);
        return exchange_make(w, g->node[f.a].op, axis, x, f.a);
    }
    if (f.what == SUM_GATHERED) {
        rewrite_note(w->log, "sum_exchanges", false, "%s: %s is added to the rank's part of %s",
                     rewrite_name(g, v).s, rewrite_name(g, g->node[f.b].in[EXCHANGE_X]).s,
                     rewrite_name(g, f.a).s);
        return gathered(w, v, &f);
    }
    rewrite_note(w->log, "sum_exchanges", false, "%s: %s and %s are added up ahead of one %s",
                 rewrite_name(g, v).s, rewrite_name(g, g->node[f.a].in[EXCHANGE_X]).s,
                 rewrite_name(g, g->node[f.b].in[EXCHANGE_X]).s, word);
    const char *how = f.what == SUM_ALIKE ? n->prim->name : "add";
    int x = graph_map(w->out, how, brought(w, f.a), brought(w, f.b), NULL);
    int y = exchange_make(w, g->node[f.a].op, axis, x, f.a);
    return y < 0 || f.what == SUM_ALIKE ? y : graph_map(w->out, "add", w->map[f.other], y, NULL);
}

graph *sum_exchanges(const graph *in, const struct rewrite_options *opt, struct rewrite_log *log)
{
    return exchange_walk(in, replace, opt, log, matches);
}
