/*
 * column_dot.c -- takes a gain's gradient from the weight's, where a product has no other use.
 *
 *     column_sum(n matmul_kn(b, W))  ==>  column_sum(W t)       where t = matmul_kn(b^T, n) is there
 *     column_sum(n matmul(b, W))     ==>  row_sum(W t)^T        where t = matmul_kn(n^T, b) is there
 *
 * For the sum over rows m of n_mk sum_j b_mj W_jk is the sum over j of W_jk t_jk. Factors of the rows may be
 * with b in one product and with n in the other; what has one value for each column comes behind the sum.
 * Only where nobody else reads the product on the left, a data gradient that is not wanted itself, which then
 * goes: else its epilogue has n for the data gradient, and the sum costs it less than W costs that of t. In:
 * verified graph. Out: no such product. Inexact: another sum.
 */
#include "factors.h"

#include "guards.h"

/* A product of b, n and factors of the rows, added up over these. */
struct dot {
    struct factors b, n, rows, columns; /* columns: of n */
};

/* Splits n's or b's factors into those of the rows, of columns (NULL: with the others), and all others. */
static bool split(const graph *g, int v, struct factors *own, struct factors *columns, struct factors *rows)
{
    struct factors all;
    if (!factors_of(g, v, &all)) return false;
    for (int i = 0; i < all.n; i++) {
        enum factor_kind kind = all.f[i].kind;
        if (kind == FACTOR_SCALE || kind == FACTOR_NUMBER || own->n + rows->n == MOST_FACTORS) return false;
        struct factors *to = kind == FACTOR_ROW ? rows : kind == FACTOR_COLUMN && columns ? columns : own;
        if (to->n == MOST_FACTORS) return false;
        to->f[to->n++] = all.f[i];
    }
    return true;
}

/* Is the value read by one node alone after another, up to v? Then it goes with v. */
static bool is_for(const struct live *live, const graph *g, int value, int v)
{
    while (value != v) {
        if (live_uses(live, value) != 1 || g->node[value].output >= 0) return false;
        int i = live->uses.at[value];
        while (!live->is[live->uses.use[i].node]) i++;
        value = live->uses.use[i].node;
    }
    return true;
}

/* Does weight gradient t add up the same products? `turned`: n is its transposed operand. What of the columns
 * t lacks is left in *columns. */
static bool is_same(const graph *g, const struct dot *want, int t, bool turned, struct factors *columns)
{
    const struct node *n = &g->node[t];
    int left = g->node[n->in[MATMUL_X]].in[TRANSPOSE_X], right = n->in[MATMUL_W];
    struct dot have = {0};
    *columns = want->columns;
    return split(g, turned ? right : left, &have.b, NULL, &have.rows) &&
           split(g, turned ? left : right, &have.n, &have.columns, &have.rows) &&
           factors_equal(&have.b, &want->b) && factors_equal(&have.n, &want->n) &&
           factors_equal(&have.rows, &want->rows) && factors_take(columns, &have.columns);
}

/* Before v: the weight gradient that adds up what v does, or -1. */
static int find(const graph *g, const struct live *live, int v, const struct dot *d, bool turned,
                struct factors *columns)
{
    for (int t = 0; t < v; t++) {
        const struct node *n = &g->node[t];
        const struct node *x = n->op == OP_MATMUL ? &g->node[n->in[MATMUL_X]] : NULL;
        bool gradient = x && live->is[t] && n->attr.matmul.kn && n->type.rank == 2 && x->op == OP_TRANSPOSE &&
                        x->attr.transpose.perm[0] == 1;
        if (gradient && is_same(g, d, t, turned, columns)) return t;
    }
    return -1;
}

/* W t summed over W's rows, or, where W is [K,N], over its columns: f32 [1,K]. */
static int sum(struct walk *w, int t, int weight, bool by_rows)
{
    int y = graph_map(w->out, "mul", w->map[t], w->map[weight], NULL);
    struct node n = {.op = OP_REDUCE,
                     .prim = graph_find_prim(w->out, "sum"),
                     .nin = 1,
                     .in = (int[]){y, -1},
                     .attr.reduce.columns = !by_rows,
                     .origin = -1};
    if (y < 0) return RULE_FAILED;
    y = graph_append(w->out, &n);
    int64_t dim[] = {1, w->in->node[weight].type.dim[by_rows ? 0 : 1]};
    return y < 0 || !by_rows ? y : graph_reshape(w->out, y, 2, dim);
}

/* Puts a factor where it belongs; false if it is none of them. */
static bool put(struct dot *d, const struct factor *f)
{
    struct factors *to = f->kind == FACTOR_ROW ? &d->rows : f->kind == FACTOR_COLUMN ? &d->columns : &d->n;
    if (f->kind > FACTOR_COLUMN || to->n == MOST_FACTORS) return false;
    to->f[to->n++] = *f;
    return true;
}

/* Can maps read the weight of product q? Products alone do of 8 bits, and of what is packed. */
static bool has_wide_weight(const graph *g, const struct node *q)
{
    int weight = q->in[MATMUL_W];
    return graph_packed(g, weight) < 0 && !dtype_is_storage(g->node[weight].type.dtype);
}

/* The product that v sums over rows, which goes with it, and what it is summed with; -1. */
static int summed(const graph *g, const struct live *live, int v, struct dot *d)
{
    const struct node *n = &g->node[v];
    struct factors all;
    int p = -1, i = 0;
    if (!node_folds_columns(n) || !is_sum(n) || !live->is[v] || n->type.rank != 2) return -1;
    if (!factors_of(g, n->in[REDUCE_X], &all)) return -1;
    for (; i < all.n && p < 0; i++) {
        const struct node *q = &g->node[all.f[i].value];
        bool product = q->op == OP_MATMUL && all.f[i].kind == FACTOR_FULL && !all.f[i].divides;
        product = product && g->node[q->in[MATMUL_W]].type.rank == 2 && has_wide_weight(g, q);
        if (product && is_for(live, g, all.f[i].value, v)) p = all.f[i].value;
    }
    if (p < 0) return -1;
    factors_drop(&all, i - 1);
    *d = (struct dot){0};
    if (!split(g, g->node[p].in[MATMUL_X], &d->b, NULL, &d->rows)) return -1;
    for (int k = 0; k < all.n; k++)
        if (!put(d, &all.f[k])) return -1;
    return p;
}

/* The weight's gradient in whose place v is summed, of the product *p; -1. */
static int match(const struct walk *w, int v, int *p, struct factors *columns)
{
    const struct live *live = w->ctx;
    struct dot d;
    *p = summed(w->in, live, v, &d);
    return *p < 0 ? -1 : find(w->in, live, v, &d, !w->in->node[*p].attr.matmul.kn, columns);
}

static bool matches(const struct walk *w, int v)
{
    struct factors columns;
    int p;
    return match(w, v, &p, &columns) >= 0;
}

static int replace(struct walk *w, int v)
{
    struct factors columns;
    int p, t = match(w, v, &p, &columns);
    if (t < 0) return RULE_COPY;
    const struct node *q = &w->in->node[p];
    rewrite_note(w->log, "column_dot", false, "%s: the sum over rows is one over those of %s, by %s",
                 rewrite_name(w->in, v).s, rewrite_weight(w->in, q->in[MATMUL_W]).s,
                 rewrite_name(w->in, t).s);
    int y = sum(w, t, q->in[MATMUL_W], !q->attr.matmul.kn);
    return factors_apply(w, y, &columns, &w->in->node[v].type);
}

graph *column_dot(const graph *in, const struct rewrite_options *opt, struct rewrite_log *log)
{
    return live_walk(in, replace, opt, log, matches, NULL);
}
