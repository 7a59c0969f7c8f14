/*
 * factor_k.c -- carries factors of the rows from one operand of a weight's gradient to the other.
 *
 *     matmul_kn(b^T, x s g)  ==>  matmul_kn((b s)^T, x) g          s of the rows, g of the columns
 *     matmul_kn((x s g)^T, b)  ==>  matmul_kn(x^T, b s) g^T
 *     matmul(b, W)           ==>  matmul(b s, W) / s               the data's gradient, and so for kn
 *
 * x s g, a norm's result, then is read by no weight's gradient: the product reads x, which is in memory,
 * and whoever computes b stores b s instead. What is divided by cancels behind it. So all products that read
 * b must take b s; b must be computed element by element, or by a product, and be no output; nobody but
 * products may read x s g. s is a statistic of x that is never 0, so that nothing comes back. In f16 b s
 * might underflow: only with CODA_FAST_FP16. In: verified graph. Out: no such product. Inexact: rounding
 * moves.
 */
#include "commute.h"
#include "factors.h"

#include <string.h>

/* A weight's gradient, as it may be. */
struct gradient {
    bool is, turned;           /* turned: x s g is the transposed operand */
    int b, x;                  /* x: the operand that is a product of factors */
    struct factors rows, rest; /* rest: x itself, the only full one, and gains */
};

/* What becomes of value b. */
struct plan {
    int gradient; /* one whose factors it takes; -1: it stays */
    int made;     /* b s in w->out; -1: not yet */
    int next;     /* the next that is made at the same node; -1 */
};

struct facts {
    struct gradient *gradient; /* one for each product; */
    int *of;                   /* of a node: its number there, or -1 */
    int gradients;
    struct plan *plan; /* of each value that rows_origin() may give */
    int *first;        /* of a node: what is made behind it, or -1 */
};

static bool is_matrix_transpose(const struct node *n)
{
    return n->op == OP_TRANSPOSE && n->type.rank == 2 && n->attr.transpose.perm[0] == 1;
}

/* Is s a statistic of x's rows? So a factor moves away from what it is computed from, and never back. */
static bool is_statistic_of(const graph *g, int s, int x)
{
    while (g->node[s].op == OP_RESHAPE || g->node[s].op == OP_CAST || g->node[s].op == OP_MAP)
        s = g->node[s].in[0];
    if (g->node[s].op != OP_REDUCE) return false;
    s = rows_origin(g, g->node[s].in[REDUCE_X]);
    while (g->node[s].op == OP_CAST) s = rows_origin(g, g->node[s].in[CAST_X]);
    return s == rows_origin(g, x);
}

/* Splits the factors of a product's operand; false if none is of the rows, or they are not such as move. */
static bool split(const graph *g, int v, struct gradient *d)
{
    struct factors all;
    if (!factors_of(g, v, &all)) return false;
    d->rows = factors_select(&all, FACTOR_ROW, false);
    d->rest = factors_select(&all, FACTOR_ROW, true);
    int full = factors_first_full(&d->rest);
    if (!d->rows.n || full < 0 || !factors_are_rows(g, &d->rows)) return false;
    for (int i = 0; i < d->rest.n; i++)
        if (i != full && d->rest.f[i].kind != FACTOR_COLUMN) return false;
    struct factor x = d->rest.f[full];
    for (int i = 0; i < d->rows.n; i++)
        if (!is_statistic_of(g, d->rows.f[i].value, x.value)) return false;
    factors_drop(&d->rest, full);
    memmove(&d->rest.f[1], &d->rest.f[0], sizeof x * (size_t)d->rest.n++);
    d->rest.f[0] = x;
    return g->node[x.value].type.dtype == g->node[v].type.dtype;
}

/* Is x in memory whatever its norm does? It is no layer over something else, and others read it, too. */
static bool is_at_hand(const graph *g, const struct live *live, int x)
{
    return op_is_leaf(g->node[x].op) || (layer_of(g, x).kind == LAYER_NONE && live_uses(live, x) > 1);
}

/* Do products alone read v, as it is, transposed or with its leading dimensions joined? */
static bool is_read_by_products(const graph *g, const struct live *live, int v)
{
    if (g->node[v].output >= 0) return false;
    for (int i = live->uses.at[v]; i < live->uses.at[v + 1]; i++) {
        int n = live->uses.use[i].node;
        const struct node *r = &g->node[n];
        bool passes = r->op == OP_RESHAPE || r->op == OP_TRANSPOSE;
        if (!live->is[n] || r->op == OP_MATMUL) continue;
        if (!passes || !is_read_by_products(g, live, n)) return false;
    }
    return true;
}

static struct gradient gradient_of(const graph *g, const struct live *live, int m)
{
    const struct node *n = &g->node[m];
    struct gradient d = {0};
    bool product = n->op == OP_MATMUL && n->attr.matmul.kn && n->type.rank == 2 && live->is[m];
    if (!product || !is_matrix_transpose(&g->node[n->in[MATMUL_X]])) return d;
    int left = g->node[n->in[MATMUL_X]].in[TRANSPOSE_X], right = n->in[MATMUL_W];
    for (int turned = 0; turned < 2 && !d.is; turned++) {
        d.x = turned ? left : right;
        d.b = rows_origin(g, turned ? right : left);
        d.turned = turned;
        d.is = split(g, d.x, &d) && is_at_hand(g, live, d.rest.f[0].value) &&
               is_read_by_products(g, live, rows_origin(g, d.x));
    }
    return d;
}

/* Is the product n, which reads b at `operand`, transposed or not, one that can take b s? */
static bool takes(const graph *g, const struct facts *f, int n, int operand, int b, bool turned)
{
    const struct gradient *like = &f->gradient[f->plan[b].gradient];
    const struct gradient *d = f->of[n] >= 0 ? &f->gradient[f->of[n]] : NULL;
    if (g->node[n].op != OP_MATMUL) return false;
    if (operand == MATMUL_X && !turned) return true;
    return d && d->b == b && d->turned == (operand == MATMUL_W) && factors_equal(&d->rows, &like->rows);
}

/* Can all that read v, which is b by other leading dimensions or transposed, do with b s? *first becomes the
 * first product among them. */
static bool all_take(const graph *g, const struct live *live, const struct facts *f, int v, int b,
                     bool turned, int *first)
{
    if (g->node[v].output >= 0) return false;
    for (int i = live->uses.at[v]; i < live->uses.at[v + 1]; i++) {
        int n = live->uses.use[i].node;
        const struct node *r = &g->node[n];
        if (!live->is[n]) continue;
        bool passes = (r->op == OP_RESHAPE && rows_origin(g, n) == b) || is_matrix_transpose(r);
        bool computes = (r->op == OP_MAP || r->op == OP_CAST || r->op == OP_REDUCE) && !turned;
        if (passes && !all_take(g, live, f, n, b, turned != is_matrix_transpose(r), first)) return false;
        if (passes || computes) continue;
        if (!takes(g, f, n, live->uses.use[i].operand, b, turned)) return false;
        *first = MIN(*first, n);
    }
    return true;
}

/* Decides what becomes of b, and where b s is made: behind b and the factors, ahead of all products. */
static void decide(const graph *g, const struct live *live, struct facts *f, int b)
{
    struct plan *p = &f->plan[b];
    const struct factors *rows = &f->gradient[p->gradient].rows;
    int first = g->nodes, last = b;
    for (int i = 0; i < rows->n; i++)
        if (!op_is_leaf(g->node[rows->f[i].value].op)) last = MAX(last, rows->f[i].value);
    bool moves = !op_is_leaf(g->node[b].op) && is_computed(g, b) && g->node[b].state < 0 &&
                 all_take(g, live, f, b, b, false, &first) && last < first;
    if (!moves) {
        p->gradient = -1;
        return;
    }
    p->next = f->first[last];
    f->first[last] = b;
}

static bool prepare(const graph *g, struct live *live, const struct rewrite_options *opt)
{
    struct facts *f = live->own = ARENA_NEW(&live->arena, struct facts, 1);
    int products = 0;
    for (int n = 0; n < g->nodes; n++) products += g->node[n].op == OP_MATMUL;
    if (!f) return false;
    f->gradient = ARENA_NEW(&live->arena, struct gradient, products + 1);
    f->of = ARENA_NEW(&live->arena, int, g->nodes + 1);
    f->plan = ARENA_NEW(&live->arena, struct plan, g->nodes + 1);
    f->first = ARENA_NEW(&live->arena, int, g->nodes + 1);
    if (live->arena.failed) return false;
    for (int n = 0; n < g->nodes; n++) {
        f->of[n] = f->first[n] = -1;
        f->plan[n] = (struct plan){-1, -1, -1};
    }
    for (int n = 0; n < g->nodes; n++) {
        struct gradient d = gradient_of(g, live, n);
        if (!d.is || (g->node[d.b].type.dtype == CODA_F16 && !opt->fast_f16)) continue;
        f->gradient[f->of[n] = f->gradients++] = d;
        if (f->plan[d.b].gradient < 0) f->plan[d.b].gradient = f->of[n];
    }
    for (int b = 0; b < g->nodes; b++)
        if (f->plan[b].gradient >= 0) decide(g, live, f, b);
    return true;
}

/* ---- The new graph ---- */

/* b s for each b that can be had from here on. */
static int make(struct walk *w, struct facts *f, int n)
{
    w->map[n] = graph_copy_node(w->out, w->in, n, w->map);
    for (int b = f->first[n]; b >= 0 && w->map[n] >= 0; b = f->plan[b].next)
        f->plan[b].made =
            factors_apply(w, w->map[b], &f->gradient[f->plan[b].gradient].rows, &w->in->node[b].type);
    return w->map[n];
}

/* The gain [K] of t's columns, as what its rows are multiplied by. */
static int of_rows(struct walk *w, int gain)
{
    int64_t k = type_columns(&w->in->node[gain].type);
    return graph_reshape(w->out, w->map[gain], 2, (int64_t[]){k, 1});
}

static int weight_gradient(struct walk *w, int m, const struct gradient *d, int bs)
{
    const struct node *n = &w->in->node[m];
    int x = rows_as(w, w->map[d->rest.f[0].value], &w->in->node[d->x].type);
    struct node turn = w->in->node[n->in[MATMUL_X]], product = *n;
    int left = d->turned ? x : rows_as(w, bs, &w->in->node[turn.in[TRANSPOSE_X]].type);
    turn.in = &left;
    turn.origin = product.origin = -1;
    int right = d->turned ? rows_as(w, bs, &w->in->node[n->in[MATMUL_W]].type) : x;
    if (left < 0 || right < 0) return RULE_FAILED;
    product.in = (int[]){graph_append(w->out, &turn), right};
    int y = product.in[0] < 0 ? RULE_FAILED : graph_append(w->out, &product);
    for (int i = 1; i < d->rest.n && y >= 0; i++) {
        int gain = d->rest.f[i].value;
        y = graph_map(w->out, d->rest.f[i].divides ? "div" : "mul", y,
                      d->turned ? of_rows(w, gain) : w->map[gain], NULL);
    }
    rewrite_note(w->log, "factor_k", false, "%s: %s goes from %s to its other operand, %s",
                 rewrite_name(w->in, m).s, rewrite_meaning(w->in, d->rows.f[0].value).s,
                 rewrite_name(w->in, d->rest.f[0].value).s, rewrite_name(w->in, d->b).s);
    return y;
}

static int data_gradient(struct walk *w, int m, const struct factors *rows, int b, int bs)
{
    struct node product = w->in->node[m];
    struct factors back = *rows;
    product.in =
        (int[]){rows_as(w, bs, &w->in->node[product.in[MATMUL_X]].type), w->map[product.in[MATMUL_W]]};
    product.origin = -1;
    if (product.in[0] < 0) return RULE_FAILED;
    for (int i = 0; i < back.n; i++) back.f[i].divides = !back.f[i].divides;
    rewrite_note(w->log, "factor_k", false, "%s: it takes %s times %s, and is divided by that",
                 rewrite_name(w->in, m).s, rewrite_name(w->in, b).s,
                 rewrite_meaning(w->in, rows->f[0].value).s);
    int y = graph_append(w->out, &product);
    return y < 0 ? y : factors_apply(w, y, &back, &w->in->node[m].type);
}

static int replace(struct walk *w, int m)
{
    const struct live *live = w->ctx;
    struct facts *f = live->own;
    const struct node *n = &w->in->node[m];
    if (f->first[m] >= 0) return make(w, f, m);
    if (n->op != OP_MATMUL || !live->is[m]) return RULE_COPY;
    const struct gradient *d = f->of[m] >= 0 ? &f->gradient[f->of[m]] : NULL;
    int b = d ? d->b : rows_origin(w->in, n->in[MATMUL_X]);
    if (f->plan[b].made < 0) return RULE_COPY;
    if (d) return weight_gradient(w, m, d, f->plan[b].made);
    return data_gradient(w, m, &f->gradient[f->plan[b].gradient].rows, b, f->plan[b].made);
}

static bool matches(const struct walk *w, int v)
{
    const struct live *live = w->ctx;
    const struct facts *f = live->own;
    return f->first[v] >= 0;
}

/* A product of a transposed matrix. */
static bool has_weight_gradient(const graph *g)
{
    for (int n = 0; n < g->nodes; n++)
        if (g->node[n].op == OP_MATMUL && is_matrix_transpose(&g->node[g->node[n].in[MATMUL_X]])) return true;
    return false;
}

graph *factor_k(const graph *in, const struct rewrite_options *opt, struct rewrite_log *log)
{
    if (!has_weight_gradient(in)) return rewrite_nothing(in);
    return live_walk(in, replace, opt, log, matches, prepare);
}
