/*
 * sum_concat.c -- sums the rows of what is put together part by part.
 *
 *     sum(concat(a, b) z)  ==>  sum(a z_a + b z_b)           z_a, z_b: z's columns that meet a and b
 *     sum(concat(a, b) z)  ==>  sum(a z_a) + sum(b z_b)      where a and b are not equally wide
 *
 * along the columns, also where they interleave. The parts are in the epilogues that compute them; the concat
 * is memory. Only where each part is computed element by element, or by a product. In: verified graph. Out:
 * no such sum. Inexact: another order.
 */
#include "factors.h"

#include "guards.h"

/* The columns of a factor that meet part i of concat c, which begins at column `at`. */
static int columns_of(struct walk *w, const struct node *c, int i, int64_t at, const struct factor *f)
{
    const struct type *t = &w->in->node[c->in[i]].type;
    int64_t all = type_columns(&c->type), own = type_columns(t);
    int v = w->map[f->value];
    if (f->kind == FACTOR_FULL) v = rows_as(w, v, &c->type);
    if (v < 0 || (f->kind != FACTOR_FULL && f->kind != FACTOR_COLUMN)) return v;
    struct attr_slice a = {.axis = w->out->node[v].type.rank - 1, .start = at, .stop = at + own, .step = 1};
    if (c->attr.concat.interleave) a.start = i, a.stop = all, a.step = c->nin;
    struct node slice = {.op = OP_SLICE, .nin = 1, .in = &v, .attr.slice = a, .origin = -1};
    return graph_append(w->out, &slice);
}

/* Part i times its columns of the factors, in f32 where `like` is. */
static int term(struct walk *w, const struct node *c, int i, int64_t at, const struct factors *fs,
                const struct type *like)
{
    int y = factors_widen(w, w->map[c->in[i]], like);
    for (int k = 0; k < fs->n && y >= 0; k++) {
        const struct factor *f = &fs->f[k];
        int v = columns_of(w, c, i, at, f);
        if (v >= 0) y = graph_map(w->out, f->divides ? "div" : "mul", y, v, NULL);
        else y = RULE_FAILED;
    }
    return y;
}

static bool is_even(const graph *g, const struct node *c)
{
    for (int i = 1; i < c->nin; i++)
        if (!extents_equal(type_columns(&g->node[c->in[i]].type), type_columns(&g->node[c->in[0]].type)))
            return false;
    return true;
}

static int sum(struct walk *w, const struct node *c, const struct factors *fs, const struct type *like)
{
    bool even = is_even(w->in, c);
    int total = -1;
    int64_t at = 0;
    for (int i = 0; i < c->nin; i++) {
        int y = term(w, c, i, at, fs, like);
        if (y >= 0 && !even) y = graph_reduce(w->out, "sum", y, -1);
        if (y >= 0 && i > 0) y = graph_map(w->out, "add", total, y, NULL);
        if (y < 0) return RULE_FAILED;
        total = y;
        at += type_columns(&w->in->node[c->in[i]].type);
    }
    return even ? graph_reduce(w->out, "sum", total, -1) : total;
}

/* A concat of columns whose parts are all computed where they can be summed. */
static bool is_of_parts(const graph *g, int v)
{
    const struct node *c = &g->node[v];
    if (c->op != OP_CONCAT || c->attr.concat.axis != c->type.rank - 1) return false;
    for (int i = 0; i < c->nin; i++)
        if (!is_computed(g, c->in[i]) || !dim_is_number(type_columns(&g->node[c->in[i]].type))) return false;
    return true;
}

/* The concat that v sums, times the other factors, or -1. */
static int match(const struct walk *w, int v, struct factors *others)
{
    const graph *g = w->in;
    const struct live *live = w->ctx;
    if (!is_row_sum(&g->node[v]) || !live->is[v] || !factors_of(g, g->node[v].in[REDUCE_X], others))
        return -1;
    for (int i = 0; i < others->n; i++) {
        int p = others->f[i].value;
        if (others->f[i].kind != FACTOR_FULL || others->f[i].divides || !is_of_parts(g, p)) continue;
        factors_drop(others, i);
        return p;
    }
    return -1;
}

static bool matches(const struct walk *w, int v)
{
    struct factors others;
    return match(w, v, &others) >= 0;
}

static int replace(struct walk *w, int v)
{
    const graph *g = w->in;
    struct factors row, rest = {0}; /* what is of the rows comes behind the sum */
    int p = match(w, v, &row);
    if (p < 0) return RULE_COPY;
    for (int k = row.n - 1; k >= 0; k--)
        if (row.f[k].kind == FACTOR_FULL || row.f[k].kind == FACTOR_COLUMN)
            rest.f[rest.n++] = row.f[k], factors_drop(&row, k);
    rewrite_note(w->log, "sum_concat", false, "%s: it is summed part by part of %s", rewrite_name(g, v).s,
                 rewrite_name(g, p).s);
    int y = sum(w, &g->node[p], &rest, &g->node[g->node[v].in[REDUCE_X]].type);
    y = factors_apply(w, y, &row, &g->node[p].type);
    return rows_as(w, y, &g->node[v].type);
}

graph *sum_concat(const graph *in, const struct rewrite_options *opt, struct rewrite_log *log)
{
    return live_walk(in, replace, opt, log, matches, NULL);
}
