/*
 * join_products.c -- products of one input by several weights are one.
 *
 *     x a', x b', x c'  ==>  z[:, 0:A], z[:, A:B], z[:, B:C]      with z = x concat(a, b, c)'
 *
 * Checkpoints have the weights of queries, keys and values apart, and those of a gate and what it gates. Two
 * kinds are joined: those that one attention reads, and two that one map multiplies, or adds, after maps of
 * each alone, as an epilogue that has both does. The weights are dense matrices of the caller's, which the
 * product reads where they lie: no run copies them. Exact.
 */
#include "guards.h"
#include "walk.h"

#include <stdlib.h>

enum { MOST_STEPS = 12, BLOCK = 64 };

struct join {
    int *with;    /* of a product: the first one that it is joined with, itself included; -1: none */
    int *sink;    /* of a product: the attention that reads it; -1: none */
    int *uses;    /* of a value */
    int *seen;    /* of a value: 1 + the last attention from which it was reached */
    int *merged;  /* of the first product: z in the new graph; -1 */
    bool *mapped; /* of a product: a map or a statistic is made of it before its sink */
};

/* ---- Candidates ---- */

static bool is_weight(const graph *g, int w)
{
    const struct node *n = &g->node[w];
    const struct type *t = &n->type;
    return n->op == OP_WEIGHT && t->rank == 2 && extents_equal(n->stride[0], t->dim[1]) &&
           extent_is_one(n->stride[1]) && extent_reaches(t->dim[0], 1) && extent_reaches(t->dim[1], 1);
}

static bool is_product(const graph *g, int v)
{
    const struct node *n = v < 0 ? NULL : &g->node[v];
    return n && n->op == OP_MATMUL && !n->attr.matmul.kn && n->type.rank >= 2 &&
           is_weight(g, n->in[MATMUL_W]) &&
           g->node[n->in[MATMUL_W]].type.dtype == g->node[n->in[MATMUL_X]].type.dtype &&
           !dtype_is_storage(g->node[n->in[MATMUL_W]].type.dtype);
}

static int64_t columns_of(const graph *g, int v) { return type_columns(&g->node[v].type); }

/* One x, one K, and different weights. */
static bool are_alike(const graph *g, int a, int b)
{
    const struct node *m = &g->node[a], *n = &g->node[b];
    return a != b && m->in[MATMUL_X] == n->in[MATMUL_X] && m->in[MATMUL_W] != n->in[MATMUL_W] &&
           m->attr.matmul.f32 == n->attr.matmul.f32;
}

/* ---- Gates ---- */

/* The product that operand i of a map is made from, by maps whose other operands are numbers; -1: none, or
 * others read what lies between. */
static int gated(const graph *g, const struct join *j, int v)
{
    for (int step = 0; step < MOST_STEPS && v >= 0; step++) {
        const struct node *n = &g->node[v];
        int next = -1, others = 0;
        if (j->uses[v] != 1 || n->output >= 0) return -1;
        if (is_product(g, v)) return v;
        if (n->op != OP_MAP && n->op != OP_CAST) return -1;
        for (int i = 0; i < n->nin; i++)
            if (g->node[n->in[i]].op != OP_CONSTANT) next = n->in[i], others++;
        if (others != 1) return -1;
        v = next;
    }
    return -1;
}

static void find_gates(const graph *g, struct join *j)
{
    for (int v = 0; v < g->nodes; v++) {
        const struct node *n = &g->node[v];
        int a = n->op == OP_MAP && n->nin == 2 ? gated(g, j, n->in[0]) : -1;
        int b = a >= 0 ? gated(g, j, n->in[1]) : -1;
        if (b < 0 || !are_alike(g, a, b) || !extents_equal(columns_of(g, a), columns_of(g, b))) continue;
        if (j->with[a] >= 0 || j->with[b] >= 0) continue;
        j->with[a] = j->with[b] = MIN(a, b);
    }
}

/* ---- What an attention reads ---- */

/* Walks what `value` is made of, up to products. `mapped`: it is made by more than moves and turns. */
static void reach(const graph *g, struct join *j, int value, int attention, bool mapped, int depth)
{
    if (value < 0 || j->seen[value] == 1 + attention || !depth) return;
    const struct node *n = &g->node[value];
    j->seen[value] = 1 + attention;
    if (is_product(g, value)) {
        if (j->sink[value] < 0) j->sink[value] = attention;
        j->mapped[value] = j->mapped[value] || mapped;
        return;
    }
    bool map = n->op == OP_MAP || n->op == OP_CAST || n->op == OP_REDUCE;
    bool moves = op_is_view(n->op) || n->op == OP_ROPE;
    if (op_is_version(n->op)) reach(g, j, n->in[VERSION_VALUE], attention, mapped, depth - 1);
    if (moves) reach(g, j, n->in[VIEW_OF], attention, mapped, depth - 1);
    for (int i = 0; i < n->nin && map; i++) reach(g, j, n->in[i], attention, true, depth - 1);
}

/* Columns of a range begin and end with blocks of a tile, and so does a product that has ranges. */
static bool is_whole(const graph *g, int v) { return extent_is_multiple(columns_of(g, v), BLOCK); }

/* Products of matrix units come in blocks; others must if a map or a statistic is made of one of them. */
static bool may_join(const graph *g, int v, bool mapped, bool whole)
{
    return whole || (!mapped && !dtype_is_half(g->node[g->node[v].in[MATMUL_W]].type.dtype));
}

static void join_with(const graph *g, struct join *j, int first)
{
    int parts = 1;
    if (j->sink[first] < 0 || j->with[first] >= 0) return;
    bool mapped = j->mapped[first], whole = is_whole(g, first);
    for (int v = first + 1; v < j->sink[first] && parts < MOST_WEIGHT_PARTS; v++) {
        bool candidate = j->sink[v] == j->sink[first] && j->with[v] < 0 && is_product(g, v);
        if (!candidate || !are_alike(g, first, v)) continue;
        bool joins = may_join(g, v, mapped || j->mapped[v], whole && is_whole(g, v));
        for (int k = first + 1; k < v && joins; k++) /* a weight stands once */
            joins = j->with[k] != first || g->node[k].in[MATMUL_W] != g->node[v].in[MATMUL_W];
        if (!joins) continue;
        j->with[first] = j->with[v] = first;
        mapped = mapped || j->mapped[v], whole = whole && is_whole(g, v);
        parts++;
    }
}

static void find_attentions(const graph *g, struct join *j)
{
    for (int v = 0; v < g->nodes; v++)
        for (int i = 0; i <= ATTENTION_V && g->node[v].op == OP_ATTENTION; i++)
            reach(g, j, g->node[v].in[i], v, false, MOST_STEPS);
    for (int v = 0; v < g->nodes; v++)
        if (is_product(g, v)) join_with(g, j, v);
}

/* ---- One product ---- */

static int append_joined(struct walk *w, int first)
{
    const struct join *j = w->ctx;
    int in[MOST_WEIGHT_PARTS], parts = 0;
    for (int v = first; v < w->in->nodes; v++)
        if (j->with[v] == first) in[parts++] = w->map[w->in->node[v].in[MATMUL_W]];
    int weights = graph_append(w->out, &(struct node){.op = OP_CONCAT, .nin = parts, .in = in, .origin = -1});
    if (weights < 0) return -1;
    int operand[] = {w->map[w->in->node[first].in[MATMUL_X]], weights};
    struct node n = w->in->node[first];
    n.in = operand, n.nin = ARRAY_SIZE(operand);
    return graph_append(w->out, &n);
}

/* The columns of product v in a value that has those of all. */
static int columns_in(struct walk *w, int v, int whole)
{
    const struct join *j = w->ctx;
    int64_t start = 0, columns = columns_of(w->in, v);
    for (int k = j->with[v]; k < v; k++)
        if (j->with[k] == j->with[v]) start = dims_add(w->out->dims, start, columns_of(w->in, k));
    struct node n = {.op = OP_SLICE, .nin = 1, .in = &whole, .origin = -1};
    n.attr.slice = (struct attr_slice){.axis = w->in->node[v].type.rank - 1,
                                       .start = start,
                                       .stop = dims_add(w->out->dims, start, columns),
                                       .step = 1};
    return whole < 0 ? RULE_FAILED : graph_append(w->out, &n);
}

/* A cast of some columns is that of all, so that statistics are of the product's own. */
static int cast_joined(struct walk *w, int v)
{
    const struct join *j = w->ctx;
    const struct node *n = &w->in->node[v];
    int product = n->in[CAST_X];
    struct node cast = *n;
    cast.in = &j->merged[j->with[product]];
    int whole = graph_append(w->out, &cast);
    return columns_in(w, product, whole);
}

static int join(struct walk *w, int v)
{
    struct join *j = w->ctx;
    const graph *g = w->in;
    const struct node *n = &g->node[v];
    int first = j->with[v];
    if (n->op == OP_CAST && j->with[n->in[CAST_X]] >= 0) return cast_joined(w, v);
    if (first < 0) return RULE_COPY;
    int whole = first == v ? append_joined(w, v) : j->merged[first];
    if (whole < 0) return RULE_FAILED;
    j->merged[first] = whole;
    if (first != v)
        rewrite_note(w->log, "join_products", true, "%s: it is one product with %s, which reads both weights",
                     rewrite_name(g, v).s, rewrite_name(g, first).s);
    return columns_in(w, v, whole);
}

static bool find(const graph *g, struct join *j)
{
    bool any = false;
    for (int v = 0; v < g->nodes; v++) {
        j->with[v] = j->sink[v] = j->merged[v] = -1;
        for (int i = 0; i < g->node[v].nin; i++)
            if (g->node[v].in[i] >= 0) j->uses[g->node[v].in[i]]++;
    }
    find_gates(g, j);
    find_attentions(g, j);
    for (int v = 0; v < g->nodes; v++) any = any || j->with[v] >= 0;
    return any;
}

graph *join_products(const graph *in, const struct rewrite_options *opt, struct rewrite_log *log)
{
    size_t n = (size_t)in->nodes + 1;
    struct join j = {calloc(n, sizeof(int)), calloc(n, sizeof(int)), calloc(n, sizeof(int)),
                     calloc(n, sizeof(int)), calloc(n, sizeof(int)), calloc(n, sizeof(bool))};
    graph *out = NULL;
    if (!j.with || !j.sink || !j.uses || !j.seen || !j.merged || !j.mapped)
        fail(CODA_E_MEMORY, "rewrite: out of memory for %d nodes", in->nodes);
    else if (opt->fold == CODA_FOLD_IN_PLACE || !find(in, &j)) out = rewrite_nothing(in);
    else out = rewrite_walk(in, join, opt, log, &j);
    free(j.with), free(j.sink), free(j.uses), free(j.seen), free(j.merged), free(j.mapped);
    return out;
}
