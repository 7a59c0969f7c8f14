/*
 * cut_rows.c -- computes of rows only the one that is read.
 *
 *     slice(f(x, ...))  ==>  f(slice(x), ...)      of one row, f row by row: maps, products, row statistics
 *
 * So a prompt of which the last token's logits are wanted ends its last layer with that token: behind the
 * attention nothing computes the others. It goes as far as all readers of a value want the same row of it,
 * and only where a product is on the way: so nothing is computed twice. A row of what is not computed row by
 * row is a view. One row, as then those of a batch are the rows of one product. In: verified graph. Out: no
 * such slice of a product. Exact.
 */
#include "guards.h"
#include "walk.h"

#include <stdlib.h>

/* Which row of a value is read: `back` counts dimensions from the last one. */
struct rows {
    enum { ROWS_NONE, ROWS_CUT, ROWS_ALL } read;
    int back;
    struct attr_slice at;
};

struct cut {
    struct rows *rows; /* of each value of `in` */
    bool *product;     /* is there a product, down from it, among what is cut? */
    bool *blocked;     /* slices that are not worth it */
    int *made;         /* of what is cut: the value in `out` */
};

static struct rows slice_rows(const struct node *n)
{
    return (struct rows){ROWS_CUT, n->type.rank - n->attr.slice.axis, n->attr.slice};
}

static bool rows_equal(const struct rows *a, const struct rows *b)
{
    return a->back == b->back && extents_equal(a->at.start, b->at.start) &&
           extents_equal(a->at.stop, b->at.stop) && a->at.step == b->at.step;
}

/* ---- What is cut ---- */

/* Is it a slice of one row? */
static bool is_one(const graph *g, const struct node *n)
{
    if (n->op != OP_SLICE || n->attr.slice.axis >= n->type.rank - 1) return false;
    int axis = n->attr.slice.axis;
    return extent_is_one(n->type.dim[axis]) && !extent_is_one(g->node[n->in[SLICE_X]].type.dim[axis]);
}

/* Does it compute each row from the rows at its place of its operands? */
static bool is_by_rows(const graph *g, const struct node *n)
{
    switch (n->op) {
    case OP_MAP:
    case OP_CAST:
    case OP_RESHAPE: return true;
    case OP_REDUCE: return !n->attr.reduce.columns && n->nin == 1;
    case OP_MATMUL: return g->node[n->in[MATMUL_W]].type.rank == 2;
    case OP_SLICE: return n->attr.slice.axis == n->type.rank - 1;
    default: return false;
    }
}

/* Has operand i of n a row for each of n's, in the dimension `back` from the last? */
static bool has_rows(const graph *g, const struct node *n, int i, int back)
{
    const struct type *t = &g->node[n->in[i]].type;
    if (n->op == OP_MATMUL && i != MATMUL_X) return false;
    for (int k = 1; k < back && n->op == OP_RESHAPE; k++)
        if (t->rank < k || !extents_equal(t->dim[t->rank - k], n->type.dim[n->type.rank - k])) return false;
    return t->rank >= back && extents_equal(t->dim[t->rank - back], n->type.dim[n->type.rank - back]);
}

static bool is_cut(const graph *g, const struct cut *c, int v)
{
    const struct node *n = &g->node[v];
    if (c->rows[v].read != ROWS_CUT || !is_by_rows(g, n)) return false;
    return n->op != OP_RESHAPE || has_rows(g, n, RESHAPE_X, c->rows[v].back);
}

static void want(struct rows *of, const struct rows *more)
{
    if (of->read == ROWS_NONE) *of = *more;
    else if (more->read == ROWS_ALL || (of->read == ROWS_CUT && !rows_equal(of, more))) of->read = ROWS_ALL;
}

/* What node v wants of its operands. */
static void want_of_operands(const graph *g, struct cut *c, int v)
{
    static const struct rows all = {.read = ROWS_ALL};
    const struct node *n = &g->node[v];
    const struct rows of_slice = is_one(g, n) && !c->blocked[v] ? slice_rows(n) : all;
    for (int i = 0; i < n->nin; i++) {
        if (n->in[i] < 0) continue;
        bool passes = is_cut(g, c, v) && has_rows(g, n, i, c->rows[v].back);
        want(&c->rows[n->in[i]], passes ? &c->rows[v] : &of_slice);
    }
}

static void find_rows(const graph *g, struct cut *c)
{
    for (int v = 0; v < g->nodes; v++)
        c->rows[v] = (struct rows){.read = g->node[v].output >= 0 ? ROWS_ALL : ROWS_NONE};
    for (int v = g->nodes - 1; v >= 0; v--) want_of_operands(g, c, v);
    for (int v = 0; v < g->nodes; v++) {
        const struct node *n = &g->node[v];
        c->product[v] = is_cut(g, c, v) && n->op == OP_MATMUL;
        for (int i = 0; i < n->nin && is_cut(g, c, v); i++)
            if (n->in[i] >= 0 && has_rows(g, n, i, c->rows[v].back)) c->product[v] |= c->product[n->in[i]];
    }
}

/* Blocks slices that save no product; true if there were any. */
static bool block(const graph *g, struct cut *c)
{
    bool any = false;
    for (int v = 0; v < g->nodes; v++) {
        const struct node *n = &g->node[v];
        if (!is_one(g, n) || c->blocked[v] || c->product[n->in[SLICE_X]]) continue;
        any = c->blocked[v] = true;
    }
    return any;
}

/* ---- The rule ---- */

/* Operand i of v, of which the rows of v are wanted. */
static int operand(struct walk *w, const struct node *n, int i, const struct rows *rows)
{
    const struct cut *c = w->ctx;
    int x = n->in[i];
    if (x < 0 || !has_rows(w->in, n, i, rows->back)) return x < 0 ? -1 : w->map[x];
    if (is_cut(w->in, c, x)) return c->made[x];
    struct node slice = {.op = OP_SLICE, .nin = 1, .in = &w->map[x], .origin = -1};
    slice.attr.slice = rows->at;
    slice.attr.slice.axis = w->in->node[x].type.rank - rows->back;
    return graph_append(w->out, &slice);
}

/* Node v of its rows alone. */
static int cut(struct walk *w, int v)
{
    struct cut *c = w->ctx;
    struct node n = w->in->node[v];
    n.in = graph_map_operands(w->out, &w->in->node[v], w->map);
    if (!n.in) return RULE_FAILED;
    for (int i = 0; i < n.nin; i++) {
        n.in[i] = operand(w, &w->in->node[v], i, &c->rows[v]);
        if (n.in[i] < 0 && w->in->node[v].in[i] >= 0) return RULE_FAILED;
    }
    if (n.op == OP_RESHAPE) n.attr.reshape.dim[n.type.rank - c->rows[v].back] = 1;
    n.origin = -1;
    c->made[v] = graph_append(w->out, &n);
    return c->made[v] < 0 ? RULE_FAILED : RULE_DROP;
}

static int replace(struct walk *w, int v)
{
    struct cut *c = w->ctx;
    const struct node *n = &w->in->node[v];
    if (is_cut(w->in, c, v)) return cut(w, v);
    if (!is_one(w->in, n) || c->blocked[v] || !is_cut(w->in, c, n->in[SLICE_X])) return RULE_COPY;
    rewrite_note(w->log, "cut_rows", true, "%s: of %s only the rows that are read are computed",
                 rewrite_name(w->in, v).s, rewrite_name(w->in, n->in[SLICE_X]).s);
    return c->made[n->in[SLICE_X]];
}

static bool any_one(const graph *g)
{
    for (int v = 0; v < g->nodes; v++)
        if (is_one(g, &g->node[v])) return true;
    return false;
}

graph *cut_rows(const graph *in, const struct rewrite_options *opt, struct rewrite_log *log)
{
    if (!any_one(in)) return rewrite_nothing(in);
    size_t n = (size_t)in->nodes;
    struct cut c = {malloc(n * sizeof *c.rows), calloc(n, 1), calloc(n, 1), malloc(n * sizeof *c.made)};
    graph *out = NULL;
    if (c.rows && c.product && c.blocked && c.made) {
        do find_rows(in, &c);
        while (block(in, &c));
        out = rewrite_walk(in, replace, opt, log, &c);
    } else fail(CODA_E_MEMORY, "rewrite: out of memory");
    free(c.rows), free(c.product), free(c.blocked), free(c.made);
    return out;
}
