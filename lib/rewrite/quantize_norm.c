/*
 * quantize_norm.c -- rows in fp8 that do not wait for the factor of their norm.
 *
 *     s = max|x r| / c           ==>  s = (max|x| / c) r
 *     f8(x r / max(s, least))    ==>  f8(x / max(max|x| / c, least))       r [..,1] > 0
 *
 * The largest of |x r| is r times that of |x|, so the quotient has no r: a norm's row is quantised before its
 * sum of squares is known, and r joins the scale, of which there is one a row. In: verified graph. Out: no
 * such quotient. Inexact: rounding moves, and with it what lies half-way between two of fp8; rows whose scale
 * is below `least`, on either side, are rounded in other steps.
 */
#include "factors.h"

#include <string.h>

struct quantized {
    int x, scale, quotient;    /* x r, and what is made of it */
    int largest, least;        /* constants */
    struct factors rows, rest; /* r; x */
};

static bool is_map(const graph *g, int v, const char *name)
{
    return g->node[v].op == OP_MAP && !strcmp(g->node[v].prim->name, name);
}

/* Is v a map of a value and a constant? */
static bool is_by_number(const graph *g, int v, const char *name)
{
    return is_map(g, v, name) && g->node[g->node[v].in[1]].op == OP_CONSTANT;
}

static bool is_row_max(const graph *g, int v)
{
    const struct node *n = &g->node[v];
    return n->op == OP_REDUCE && !node_folds_columns(n) && !strcmp(n->prim->name, "max");
}

/* Does the cast to fp8 round what coda_quantize_rows divides by the scale of its rows? */
static bool find_parts(const graph *g, int cast, struct quantized *q)
{
    q->quotient = g->node[cast].in[CAST_X];
    if (!is_map(g, q->quotient, "div")) return false;
    int least = g->node[q->quotient].in[1];
    if (!is_by_number(g, least, "maximum")) return false;
    q->scale = g->node[least].in[0];
    if (!is_by_number(g, q->scale, "div")) return false;
    int most = g->node[q->scale].in[0];
    if (!is_row_max(g, most) || !is_map(g, g->node[most].in[REDUCE_X], "abs")) return false;
    q->x = g->node[g->node[most].in[REDUCE_X]].in[0];
    q->largest = g->node[q->scale].in[1];
    q->least = g->node[least].in[1];
    return q->x == g->node[q->quotient].in[0];
}

/* rsqrt_mean, of which factors_are_rows knows that it is never 0, is positive. */
static bool find(const graph *g, int cast, struct quantized *q)
{
    struct factors all;
    const struct node *n = &g->node[cast];
    if (n->op != OP_CAST || !dtype_is_f8(n->type.dtype) || !find_parts(g, cast, q)) return false;
    if (!factors_of(g, q->x, &all)) return false;
    q->rows = factors_select(&all, FACTOR_ROW, false);
    q->rest = factors_select(&all, FACTOR_ROW, true);
    return q->rows.n && factors_are_rows(g, &q->rows) && factors_first_full(&q->rest) >= 0;
}

/* own: of each node 1 + the cast whose scale or quotient it is. */
static bool prepare(const graph *in, struct live *live, const struct rewrite_options *opt)
{
    struct quantized q;
    int *of = live->own = ARENA_NEW(&live->arena, int, in->nodes + 1);
    (void)opt;
    for (int v = 0; of && v < in->nodes; v++)
        if (live->is[v] && find(in, v, &q)) of[q.scale] = of[q.quotient] = 1 + v;
    return of;
}

static int cast_of(const struct walk *w, int v)
{
    const struct live *live = w->ctx;
    return ((const int *)live->own)[v] - 1;
}

static bool matches(const struct walk *w, int v) { return cast_of(w, v) >= 0; }

static int replace(struct walk *w, int v)
{
    const graph *g = w->in;
    struct quantized q;
    if (cast_of(w, v) < 0 || !find(g, cast_of(w, v), &q)) return RULE_COPY;
    int x = factors_multiply(w, q.rest, &g->node[q.x].type);
    int most = x < 0 ? x : graph_reduce(w->out, "max", graph_map(w->out, "abs", x, -1, NULL), -1);
    int scale = graph_map(w->out, "div", most, w->map[q.largest], NULL);
    if (v == q.quotient)
        return graph_map(w->out, "div", x, graph_map(w->out, "maximum", scale, w->map[q.least], NULL), NULL);
    rewrite_note(w->log, "quantize_norm", false, "%s: %s joins the scale of the rows in %s",
                 rewrite_name(g, v).s, rewrite_meaning(g, q.rows.f[0].value).s,
                 dtype_name(g->node[cast_of(w, v)].type.dtype));
    return factors_apply(w, scale, &q.rows, &g->node[v].type);
}

graph *quantize_norm(const graph *in, const struct rewrite_options *opt, struct rewrite_log *log)
{
    for (int v = 0; v < in->nodes; v++)
        if (in->node[v].op == OP_CAST && dtype_is_f8(in->node[v].type.dtype))
            return live_walk(in, replace, opt, log, matches, prepare);
    return rewrite_nothing(in);
}
