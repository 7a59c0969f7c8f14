/*
 * row_dot.c -- takes a row's dot product of a gradient from where its product's result is.
 *
 *     sum(c matmul_kn(b, W))  ==>  sum(b z) / s      where z = matmul(c s, W) is there, s of the rows
 *
 * and so for matmul and matmul_kn exchanged, and for sums of such products: several read one norm. For c
 * W^T is z / s, and the sum over k of c_k sum_j b_j W_jk is the sum over j of b_j sum_k c_k W_jk. With c the
 * input of a norm, times its gain, and b the gradient of z, this is the dot product in the norm's gradient:
 * it need not wait for the product behind it, whose epilogue then has all that it needs. Only where b is made
 * of z anyway, or both are turned, so that they are at hand. In: verified graph. Out: no such sum. Inexact:
 * another sum.
 */
#include "factors.h"

enum { MOST_STEPS = 64 }; /* that b's formula may be long, for z to be found in it */

/* Is z, or a slice of it, an operand of the formula that makes b element by element? `steps` is what is
 * left to look at. */
static bool is_made_of(const graph *g, int b, int z, int *steps)
{
    const struct node *n = &g->node[b];
    if (b == z) return true;
    if (b < z || --*steps < 0) return false;
    bool elements = op_is(n->op, KIND_ELEMENTS) || op_is_view(n->op) || n->op == OP_CONCAT;
    for (int i = 0; i < n->nin && elements; i++)
        if (n->in[i] >= 0 && is_made_of(g, n->in[i], z, steps)) return true;
    return false;
}

/* Is b turned back, and z turned? Then turn_dot finds both where they are. */
static bool is_turned_back(const graph *g, const struct live *live, int b, int z)
{
    const struct node *n = &g->node[b];
    if (n->op != OP_ROPE || !n->attr.rope.inverse) return false;
    for (int i = live->uses.at[z]; i < live->uses.at[z + 1]; i++) {
        int turn = live->uses.use[i].node;
        if (live->is[turn] && g->node[turn].op == OP_ROPE) return true;
    }
    return false;
}

/* The product of c times factors of the rows, which go to `rows`, by p's weight; -1. */
static int find_product(const struct walk *w, int v, int p, const struct factors *c, struct factors *rows)
{
    const graph *g = w->in;
    const struct live *live = w->ctx;
    const struct node *q = &g->node[p];
    int weight = q->in[MATMUL_W], b = q->in[MATMUL_X];
    for (int i = live->uses.at[weight]; i < live->uses.at[weight + 1]; i++) {
        int z = live->uses.use[i].node, steps = MOST_STEPS;
        const struct node *n = &g->node[z];
        bool forward = n->op == OP_MATMUL && live->uses.use[i].operand == MATMUL_W && z < v && live->is[z] &&
                       n->attr.matmul.kn != q->attr.matmul.kn;
        if (!forward || !rows_regroup(&n->type, &g->node[b].type)) continue;
        bool same =
            factors_of(g, n->in[MATMUL_X], rows) && factors_take(rows, c) && factors_are_rows(g, rows);
        if (same && (is_made_of(g, b, z, &steps) || is_turned_back(g, live, b, z))) return z;
    }
    return -1;
}

/* The sum of b z, divided by the factors of the rows. */
static int dot(struct walk *w, int v, int b, int z, const struct factors *rows)
{
    const struct type *t = &w->in->node[b].type;
    struct factors through = *rows;
    int y = factors_widen(w, w->map[b], &w->in->node[w->in->node[v].in[REDUCE_X]].type);
    y = graph_map(w->out, "mul", y, rows_as(w, w->map[z], t), NULL);
    y = y < 0 ? y : graph_reduce(w->out, "sum", y, -1);
    for (int i = 0; i < through.n; i++) through.f[i].divides = !through.f[i].divides;
    return rows_as(w, factors_apply(w, y, &through, t), &w->in->node[v].type);
}

/* Products whose sum the value is. */
enum { MOST_ADDENDS = 8 };
struct terms {
    int n, product[MOST_ADDENDS], z[MOST_ADDENDS];
    struct factors rows[MOST_ADDENDS];
};

static bool add_terms(const graph *g, int p, struct terms *t)
{
    const struct node *n = &g->node[p];
    bool sum = n->op == OP_MAP && n->nin == 2 && n->prim->facts.shift == 3 && n->prim->facts.jointly == 3;
    for (int i = 0; i < 2 && sum; i++)
        if (!type_equal(&n->type, &g->node[n->in[i]].type) || !add_terms(g, n->in[i], t)) return false;
    if (n->op == OP_MATMUL && t->n < MOST_ADDENDS) t->product[t->n++] = p;
    else if (!sum) return false;
    return true;
}

/* Finds the product of the forward pass for each of them. */
static bool find_terms(const struct walk *w, int v, int p, const struct factors *c, struct terms *t)
{
    t->n = 0;
    if (!add_terms(w->in, p, t)) return false;
    for (int i = 0; i < t->n; i++)
        if ((t->z[i] = find_product(w, v, t->product[i], c, &t->rows[i])) < 0) return false;
    return true;
}

/* The sum of all dot products, times the other factors of the rows. */
static int sum_terms(struct walk *w, int v, const struct terms *t, const struct factors *scale)
{
    int total = -1;
    for (int i = 0; i < t->n; i++) {
        int b = w->in->node[t->product[i]].in[MATMUL_X], y = dot(w, v, b, t->z[i], &t->rows[i]);
        if (y < 0) return RULE_FAILED;
        rewrite_note(w->log, "row_dot", false, "%s: the dot product with %s's operand is that of %s with %s",
                     rewrite_name(w->in, v).s, rewrite_name(w->in, t->z[i]).s, rewrite_name(w->in, t->z[i]).s,
                     rewrite_name(w->in, b).s);
        total = total < 0 ? y : graph_map(w->out, "add", total, y, NULL);
    }
    return factors_apply(w, total, scale, &w->in->node[v].type);
}

static bool match(const struct walk *w, int v, struct terms *t, struct factors *scale)
{
    const graph *g = w->in;
    const struct live *live = w->ctx;
    struct factors all;
    if (!is_row_sum(&g->node[v]) || !live->is[v] || !factors_of(g, g->node[v].in[REDUCE_X], &all))
        return false;
    for (int i = 0; i < all.n; i++) {
        if (all.f[i].kind != FACTOR_FULL || all.f[i].divides) continue;
        struct factors c = all;
        *scale = (struct factors){0};
        factors_drop(&c, i);
        for (int j = c.n - 1; j >= 0; j--)
            if (c.f[j].kind != FACTOR_FULL && c.f[j].kind != FACTOR_COLUMN)
                scale->f[scale->n++] = c.f[j], factors_drop(&c, j);
        if (find_terms(w, v, all.f[i].value, &c, t)) return true;
    }
    return false;
}

static bool matches(const struct walk *w, int v)
{
    struct terms t;
    struct factors scale;
    return match(w, v, &t, &scale);
}

static int replace(struct walk *w, int v)
{
    struct terms t;
    struct factors scale;
    return match(w, v, &t, &scale) ? sum_terms(w, v, &t, &scale) : RULE_COPY;
}

graph *row_dot(const graph *in, const struct rewrite_options *opt, struct rewrite_log *log)
{
    return live_walk(in, replace, opt, log, matches, NULL);
}
