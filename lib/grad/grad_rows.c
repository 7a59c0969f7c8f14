/*
 * grad_rows.c -- row by row: reductions, norms and softmaxes.
 *
 * Softmax: p (dy - sum p dy). RMSNorm, with r = 1 / sqrt(mean x^2 + eps) and dn = dy gain:
 * dx = r dn - r^3 / N (sum dn x) x (Zhang & Sennrich, arXiv 1910.07467, section 4.1). LayerNorm, with xh the
 * normalised row: dx = r (dn - mean dn - xh mean(dn xh)) (Ba et al., arXiv 1607.06450). A gain's gradient is
 * the column sum of dy xh, a bias's of dy.
 */
#include "rules.h"

#include <string.h>

/* The number of elements that each result of the reduction is made of; it may be an expression. */
static int64_t folded(const struct grad *w, const struct node *n)
{
    const struct type *x = grad_type(w, n->in[REDUCE_X]);
    return x->dim[x->rank - 1 - (int)n->attr.reduce.columns];
}

static double part_of(int64_t extent) { return extent ? 1.0 / (double)extent : 1; }

int make_key(struct grad *w, int x, int key)
{
    struct type t = *grad_type(w, x);
    if (grad_type(w, key)->rank == t.rank) return key;
    t.dim[t.rank - 1] = 1;
    return make_reshape(w, key, &t);
}

int make_one_hot(struct grad *w, int x, int key)
{
    return make_map(w, "equal", VALUES(make_key(w, x, key), make_iota(w, type_columns(grad_type(w, x)))));
}

/* ---- Reductions: n, the node; v, its value; dy, one cotangent for each row or column ---- */

/* The rule of a reduction whose derivative is no map of an element, its row's statistic and its key. */
typedef int reduction(struct grad *w, const struct node *n, int v, int dy);

/* So many as a symbol says, as [1, 1]: the sum of a 1 for each. */
static int count_of(struct grad *w, int64_t extent)
{
    struct type column = {.rank = 2, .dim = {extent, 1}, .dims = w->g->dims};
    return make_reduce(w, "sum", make_wide(w, graph_constant(w->g, CODA_F32, 1), &column), -1, true);
}

static int of_mean(struct grad *w, const struct node *n, int v, int dy)
{
    int64_t count = folded(w, n);
    (void)v;
    if (dim_is_number(count)) return make_scale(w, dy, part_of(count));
    return make_map(w, "div", VALUES(dy, count_of(w, count)));
}

/* The deviations from the mean add up to 0: its own derivative drops out. */
static int of_m2(struct grad *w, const struct node *n, int v, int dy)
{
    (void)v;
    int x = n->in[REDUCE_X], mean = make_reduce(w, "mean", x, -1, n->attr.reduce.columns);
    return make_mul(w, make_sub(w, x, mean), make_scale(w, dy, 2));
}

/* As memory of this dtype holds it, which a cast in the midst of a kernel does not say. */
static int rounded(struct grad *w, int x, coda_dtype dtype)
{
    if (dtype != CODA_BF16 && dtype != CODA_F16) return x;
    return make_map(w, dtype == CODA_BF16 ? "to_bf16" : "to_f16", VALUES(x));
}

/* Elements that are equally large share it evenly, as they would if all of them moved together. x of 16 bits
 * may have been reduced before it was rounded, and may be compared before or behind it; rounding keeps the
 * order, so that the largest rounded one is the largest one, rounded. */
static int of_largest(struct grad *w, const struct node *n, int v, int dy)
{
    int x = n->in[REDUCE_X];
    coda_dtype dtype = grad_type(w, x)->dtype;
    int hit = make_map(w, "equal", VALUES(rounded(w, x, dtype), rounded(w, v, dtype)));
    int hits = make_reduce(w, "sum", hit, -1, n->attr.reduce.columns);
    return make_mul(w, hit, make_map(w, "div", VALUES(dy, hits)));
}

static int of_select(struct grad *w, const struct node *n, int v, int dy)
{
    (void)v;
    return make_where(w, make_one_hot(w, n->in[REDUCE_X], n->in[REDUCE_KEY]), dy, make_zero(w, dy));
}

static int of_nll(struct grad *w, const struct node *n, int v, int dy)
{
    int x = n->in[REDUCE_X], total = make_reduce(w, "log_sum_exp", x, -1, false);
    (void)v;
    int p = make_map(w, "exp_sub", VALUES(x, total));
    return make_mul(w, make_sub(w, p, make_one_hot(w, x, n->in[REDUCE_KEY])), dy);
}

static const struct {
    const char *name;
    reduction *of;
} reductions[] = {{"mean", of_mean}, {"m2", of_m2}, {"select", of_select}, {"nll", of_nll}};

/* dy, one for each row, times the partial derivative by each element; -1 with the graph poisoned. */
static int by_element(struct grad *w, int v, int dy)
{
    const struct node *n = grad_node(w, v);
    const struct prim *by = n->prim->facts.grad[REDUCE_X];
    int in[] = {n->in[REDUCE_X], v, n->in[REDUCE_KEY]};
    for (int i = 0; i < ARRAY_SIZE(reductions); i++)
        if (!strcmp(n->prim->name, reductions[i].name)) return reductions[i].of(w, n, v, dy);
    if (prim_partial(n->prim, REDUCE_X) == PRIM_PARTIAL_ONE) return dy;
    if (by && !strcmp(by->name, "equal")) return of_largest(w, n, v, dy);
    if (by) return make_mul(w, make_prim(w, by, in, by->inputs, NULL), dy);
    grad_refuse(w, v, REDUCE_X, "is a reduction without a derivative");
    return -1;
}

void grad_reduce(struct grad *w, int v, int dy)
{
    const struct node *n = grad_node(w, v);
    int x = n->in[REDUCE_X];
    if (prim_partial(n->prim, REDUCE_X) == PRIM_PARTIAL_ZERO) return;
    grad_give(w, x, make_cast(w, by_element(w, v, dy), grad_type(w, x)->dtype));
}

/* ---- Norms ---- */

/* The gradient of an operand [N] of a norm: a column sum. */
static void give_columns(struct grad *w, const struct node *n, int operand, int value)
{
    if (grad_wants(w, n, operand))
        grad_give(w, n->in[operand], make_sum(w, value, grad_type(w, n->in[operand])));
}

static int row_factor(struct grad *w, const char *statistic, int x, double part, float eps)
{
    int s = make_reduce(w, statistic, x, -1, false);
    return make_prim(w, prim_find("rsqrt_mean"), &s, 1, (float[]){(float)part, eps});
}

void grad_rms_norm(struct grad *w, int v, int dy)
{
    const struct node *n = grad_node(w, v);
    int x = n->in[RMS_NORM_X], gain = n->in[RMS_NORM_GAIN];
    double part = part_of(type_columns(&n->type));
    dy = make_wide(w, dy, &n->type);
    int r = row_factor(w, "sum_sq", x, part, n->attr.rms_norm.eps);
    if (grad_wants(w, n, RMS_NORM_X)) {
        int dn = gain >= 0 ? make_mul(w, dy, gain) : dy;
        int dot = make_reduce(w, "sum", make_mul(w, dn, x), -1, false);
        int cube = make_mul(w, make_mul(w, r, r), r);
        int c = make_scale(w, make_mul(w, dot, cube), -part);
        grad_give(w, x, make_add(w, make_mul(w, dn, r), make_mul(w, x, c)));
    }
    if (grad_wants(w, n, RMS_NORM_GAIN))
        give_columns(w, n, RMS_NORM_GAIN, make_mul(w, make_mul(w, dy, x), r));
}

void grad_layer_norm(struct grad *w, int v, int dy)
{
    const struct node *n = grad_node(w, v);
    int x = n->in[LAYER_NORM_X], gain = n->in[LAYER_NORM_GAIN];
    dy = make_wide(w, dy, &n->type);
    int r = row_factor(w, "m2", x, part_of(type_columns(&n->type)), n->attr.layer_norm.eps);
    int normal = make_mul(w, make_sub(w, x, make_reduce(w, "mean", x, -1, false)), r);
    if (grad_wants(w, n, LAYER_NORM_X)) {
        int dn = gain >= 0 ? make_mul(w, dy, gain) : dy;
        int mean = make_reduce(w, "mean", dn, -1, false);
        int dot = make_reduce(w, "mean", make_mul(w, dn, normal), -1, false);
        int dx = make_sub(w, make_sub(w, dn, mean), make_mul(w, normal, dot));
        grad_give(w, x, make_mul(w, dx, r));
    }
    if (grad_wants(w, n, LAYER_NORM_GAIN)) give_columns(w, n, LAYER_NORM_GAIN, make_mul(w, dy, normal));
    give_columns(w, n, LAYER_NORM_BIAS, dy);
}

/* ---- Softmax ---- */

void grad_softmax(struct grad *w, int v, int dy)
{
    int dot = make_reduce(w, "sum", make_mul(w, v, dy), -1, false);
    grad_give(w, grad_node(w, v)->in[SOFTMAX_X], make_mul(w, v, make_sub(w, dy, dot)));
}

void grad_log_softmax(struct grad *w, int v, int dy)
{
    dy = make_wide(w, dy, grad_type(w, v));
    int p = make_map(w, "exp", VALUES(v)), sum = make_reduce(w, "sum", dy, -1, false);
    grad_give(w, grad_node(w, v)->in[LOG_SOFTMAX_X], make_sub(w, dy, make_mul(w, p, sum)));
}

/* ---- The largest of a row ---- */

/* Each goes back to the column that its index names; no two name the same. */
void grad_top_k(struct grad *w, int v, int dy)
{
    const struct node *n = grad_node(w, v);
    int x = n->in[TOP_K_X], last = n->type.rank - 1;
    struct node other = *n;
    node_set_result(&other, 1);
    int index = make_append(w, other, n->in, n->nin), dx = index < 0 ? -1 : make_zero(w, dy);
    dy = make_wide(w, dy, &n->type);
    for (int i = 0; i < n->type.dim[last] && dx >= 0; i++) {
        int hit = make_one_hot(w, x, make_slice(w, index, last, i, i + 1, 1));
        dx = make_where(w, hit, make_slice(w, dy, last, i, i + 1, 1), dx);
    }
    grad_give(w, x, dx);
}
