/*
 * api_optimizer.c -- a step of an optimiser, out of nothing but calls of coda.h:
 *
 *     AdamW   m += (1 - b1) (g - m)   v += (1 - b2) (g^2 - v)   p -= lr (c1 m / (sqrt(c2 v) + eps) + decay p)
 *     SGD     g += decay p   m = mu m + g   p -= lr m, or lr (g + mu m) by Nesterov
 *     Muon    m = mu m + g   p -= lr (sqrt(max(1, N / K)) orthogonal(g + mu m) + decay p)
 *
 * Loshchilov & Hutter, arXiv 1711.05101, algorithm 2; Sutskever et al., ICML 2013, as torch.optim.SGD has it;
 * Jordan et al., "Muon: an optimizer for hidden layers in neural networks", 2024, for its coefficients, too.
 * All that reads a state comes before the first coda_assign.
 */
#include "api.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

/* A step of one tensor: what all optimisers have. */
struct step {
    graph *g;
    const char *call;
    struct type type;            /* of the gradient, in fp32 */
    coda_value grad, p, m, v, w; /* the gradient in fp32, clipped; states */
    float lr, decay;
    coda_value rate, clip, update; /* rate: takes lr's place; all CODA_NONE or of one element */
};

/* ---- Arguments ---- */

static bool refuse(struct step *s, const char *name, coda_value v)
{
    build_refuse(s->g, NAMES(name), OPERANDS(v));
    return false;
}

static const struct type *type_of(const struct step *s, coda_value v) { return build_type(s->g, s->call, v); }

static bool read_gradient(struct step *s, coda_value grad)
{
    const struct type *t = type_of(s, grad);
    if (s->g->status) return false;
    if (!t || !dtype_is_float(t->dtype) || !t->rank) {
        fail(CODA_E_INVALID, "%s: grad is %s; it must be f32, bf16 or f16, of a dimension or more", s->call,
             t ? type_text(t).s : "CODA_NONE");
        return refuse(s, "grad", grad);
    }
    s->type = *t;
    s->type.dtype = CODA_F32;
    s->grad = grad;
    return true;
}

static bool is_state(const graph *g, coda_value v)
{
    enum op op = g->node[v.id - 1].op;
    return op == OP_STATE || op_is_version(op);
}

/* A state of the gradient's shape: fp32, or of 16 bits. */
static bool read_state(struct step *s, const char *name, coda_value v, bool narrow, coda_value *out)
{
    const struct type *t = type_of(s, v);
    if (s->g->status) return false;
    struct type want = s->type;
    if (t) want.dtype = t->dtype;
    bool dtype = t && (narrow ? dtype_is_float(t->dtype) && t->dtype != CODA_F32 : t->dtype == CODA_F32);
    *out = v;
    if (dtype && type_equal(&want, t) && is_state(s->g, v)) return true;
    fail(CODA_E_INVALID, "%s: grad is %s but %s is %s%s; it must be a state of %s %s", s->call,
         dims_text(&s->type).s, name, t ? type_text(t).s : "CODA_NONE",
         t && !is_state(s->g, v) ? ", no state" : "", narrow ? "bf16 or f16" : "f32", dims_text(&s->type).s);
    return refuse(s, name, v);
}

/* fp32 of one element, as [1] or as a scalar; CODA_NONE stays. */
static bool read_one(struct step *s, const char *name, coda_value v, coda_value *out)
{
    const struct type *t = type_of(s, v);
    *out = v;
    if (s->g->status) return false;
    if (!t) return true;
    if (t->dtype == CODA_F32 && type_count(t) == 1) {
        if (t->rank > 1) *out = coda_reshape(s->g, v, 1, (int64_t[]){1});
        return true;
    }
    fail(CODA_E_INVALID, "%s: %s is %s; it must be f32 of one element", s->call, name, type_text(t).s);
    return refuse(s, name, v);
}

static bool read_number(struct step *s, const char *name, float x, float below)
{
    if (x >= 0 && x < below) return true;
    graph_poison(s->g, CODA_E_INVALID, "%s: %s is %g; it must be 0 or more, and %s", s->call, name, (double)x,
                 below == 1 ? "less than 1" : "finite");
    return false;
}

/* No two are versions of one state. */
static bool read_apart(struct step *s)
{
    static const char *const name[] = {"p", "m", "v", "w"};
    const coda_value state[] = {s->p, s->m, s->v, s->w};
    for (int i = 0; i < 4; i++)
        for (int k = 0; k < i; k++) {
            if (!state[i].id || !state[k].id) continue;
            int leaf = state_leaf(s->g, (int)state[i].id - 1);
            if (leaf != state_leaf(s->g, (int)state[k].id - 1)) continue;
            graph_poison(s->g, CODA_E_INVALID, "%s: %s and %s are the same state, %s", s->call, name[k],
                         name[i], s->g->node[leaf].name);
            return false;
        }
    return true;
}

/* What all have but for m and v. */
static bool read_step(struct step *s, coda_value grad, coda_value p, coda_value w)
{
    return read_gradient(s, grad) && read_state(s, "p", p, false, &s->p) &&
           (!w.id || read_state(s, "w", w, true, &s->w)) && read_number(s, "lr", s->lr, INFINITY) &&
           read_number(s, "weight_decay", s->decay, INFINITY) && read_one(s, "lr_value", s->rate, &s->rate) &&
           read_one(s, "clip", s->clip, &s->clip) && read_one(s, "update", s->update, &s->update);
}

static bool read_options(graph *g, coda_status status)
{
    if (status != CODA_OK) graph_poison(g, status, "%s", fail_message());
    return status == CODA_OK;
}
#define READ_OPTIONS(call, type, own, given)                                                                 \
    (build_ready(g, call) && read_options(g, SIZED_READ(call, type, own, given)))

static float or_default(float x, float number) { return x == 0 ? number : x; }
#define STEP(name, o, rate_)                                                                                 \
    {                                                                                                        \
        .g = g, .call = name, .lr = or_default((o).lr, rate_), .decay = (o).weight_decay,                    \
        .rate = (o).lr_value, .clip = (o).clip, .update = (o).update                                         \
    }

/* ---- Formulas ---- */

static coda_value times(const struct step *s, coda_value x, coda_value value, float number)
{
    if (value.id) return coda_mul(s->g, x, value);
    return number == 1 ? x : coda_scale(s->g, x, number);
}

/* x + rate (y - x): one multiplication less than (1 - rate) x + rate y, and exact for x = y. */
static coda_value lerp(const struct step *s, coda_value x, coda_value y, float rate)
{
    return coda_add(s->g, x, coda_scale(s->g, coda_sub(s->g, y, x), rate));
}

static void begin(struct step *s)
{
    bool wide = s->g->node[s->grad.id - 1].type.dtype == CODA_F32;
    if (!wide) s->grad = coda_cast(s->g, s->grad, CODA_F32);
    s->grad = times(s, s->grad, s->clip, 1);
}

/* The state's next version: what it was, bit for bit, where there is to be no update. */
static void assign(const struct step *s, coda_value state, coda_value next)
{
    if (!state.id) return;
    if (s->update.id) next = coda_where(s->g, s->update, next, state);
    coda_assign(s->g, state, next);
}

/* p -= lr direction; m and v become theirs. */
static void finish(const struct step *s, coda_value direction, coda_value m, coda_value v)
{
    coda_value p = coda_sub(s->g, s->p, times(s, direction, s->rate, s->lr));
    assign(s, s->m, m);
    assign(s, s->v, v);
    assign(s, s->p, p);
    if (s->w.id && !s->g->status) assign(s, s->w, coda_cast(s->g, p, s->g->node[s->w.id - 1].type.dtype));
}

static coda_value decayed(const struct step *s, coda_value direction)
{
    return s->decay == 0 ? direction : coda_add(s->g, direction, coda_scale(s->g, s->p, s->decay));
}

/* ---- AdamW ---- */

CODA_API void coda_adamw(coda_graph *g, coda_value grad, coda_value p, coda_value m, coda_value v,
                         coda_value w, const coda_adamw_options *opt)
{
    coda_adamw_options o;
    if (!READ_OPTIONS("adamw", coda_adamw_options, &o, opt)) return;
    struct step s = STEP("adamw", o, 1e-3f);
    o.beta1 = or_default(o.beta1, 0.9f), o.beta2 = or_default(o.beta2, 0.999f),
    o.eps = or_default(o.eps, 1e-8f);
    if (!read_step(&s, grad, p, w) || !read_state(&s, "m", m, false, &s.m) ||
        !read_state(&s, "v", v, false, &s.v) || !read_apart(&s) || !read_number(&s, "beta1", o.beta1, 1) ||
        !read_number(&s, "beta2", o.beta2, 1) || !read_number(&s, "eps", o.eps, INFINITY) ||
        !read_one(&s, "correction1", o.correction1, &o.correction1) ||
        !read_one(&s, "correction2", o.correction2, &o.correction2))
        return;
    begin(&s);
    m = lerp(&s, s.m, s.grad, (float)(1 - (double)o.beta1));
    v = lerp(&s, s.v, coda_mul(g, s.grad, s.grad), (float)(1 - (double)o.beta2));
    coda_value root = coda_sqrt(g, times(&s, v, o.correction2, 1));
    root = coda_add(g, root, coda_constant(g, CODA_F32, o.eps));
    finish(&s, decayed(&s, coda_div(g, times(&s, m, o.correction1, 1), root)), m, v);
}

/* ---- SGD ---- */

/* m = mu m + g in *m, and what the step follows: it, or Nesterov's g + mu m. */
static coda_value momentum(const struct step *s, coda_value gradient, float mu, bool nesterov, coda_value *m)
{
    *m = coda_add(s->g, coda_scale(s->g, s->m, mu), gradient);
    return nesterov ? coda_add(s->g, gradient, coda_scale(s->g, *m, mu)) : *m;
}

static bool read_flag(struct step *s, const char *name, int flag)
{
    if ((unsigned)flag <= 1) return true;
    graph_poison(s->g, CODA_E_INVALID, "%s: %s is %d; must be 0 or 1", s->call, name, flag);
    return false;
}

CODA_API void coda_sgd(coda_graph *g, coda_value grad, coda_value p, coda_value m, coda_value w,
                       const coda_sgd_options *opt)
{
    coda_sgd_options o;
    if (!READ_OPTIONS("sgd", coda_sgd_options, &o, opt)) return;
    struct step s = STEP("sgd", o, 1e-3f);
    bool without = !m.id && o.momentum == 0;
    if (!read_step(&s, grad, p, w) || !read_number(&s, "momentum", o.momentum, 1) ||
        !read_flag(&s, "nesterov", o.nesterov) || (!without && !read_state(&s, "m", m, false, &s.m)) ||
        !read_apart(&s))
        return;
    begin(&s);
    coda_value direction = decayed(&s, s.grad);
    if (s.m.id) direction = momentum(&s, direction, o.momentum, o.nesterov, &m);
    finish(&s, direction, m, CODA_NONE);
}

/* ---- Muon ---- */

/* The last two dimensions change places. */
static coda_value turned(const struct step *s, coda_value x)
{
    int perm[CODA_MAX_RANK], rank = s->type.rank;
    for (int i = 0; i < rank; i++) perm[i] = i;
    perm[rank - 2] = rank - 1, perm[rank - 1] = rank - 2;
    return coda_transpose(s->g, x, perm);
}

/* x / |x|, Frobenius's norm of each matrix [N, K] of [.., N, K]; 0 stays. */
static coda_value of_norm_1(const struct step *s, coda_value x)
{
    int64_t dims[CODA_MAX_RANK];
    int rank = s->type.rank;
    memcpy(dims, s->type.dim, sizeof dims);
    coda_value rows = coda_reshape(s->g, coda_reduce(s->g, "sum_sq", x, CODA_NONE), rank - 1, dims);
    dims[rank - 2] = dims[rank - 1] = 1;
    coda_value sum = coda_reshape(s->g, coda_row_sum(s->g, rows), rank, dims);
    sum = coda_add(s->g, sum, coda_constant(s->g, CODA_F32, 1e-14));
    return coda_mul(s->g, x, coda_rsqrt(s->g, sum));
}

/* The nearest matrix of orthogonal rows or columns, roughly: its singular values are 0.7 to 1.2 after five
 * steps. With A = X X^T a step of Newton and Schulz is X = a X + (b A + c A^2) X; A is symmetric, so A A is
 * coda_matmul's A A^T. */
static coda_value orthogonal(const struct step *s, coda_value x, coda_dtype dtype, int steps)
{
    const float a = 3.4445f, b = -4.775f, c = 2.0315f;
    graph *g = s->g;
    bool tall = s->type.dim[s->type.rank - 2] > s->type.dim[s->type.rank - 1];
    x = of_norm_1(s, x);
    if (dtype != CODA_F32) x = coda_cast(g, x, dtype);
    if (tall) x = turned(s, x);
    for (int i = 0; i < steps; i++) {
        coda_value square = coda_matmul(g, x, x);
        coda_value sum =
            coda_add(g, coda_scale(g, square, b), coda_scale(g, coda_matmul(g, square, square), c));
        x = coda_add(g, coda_scale(g, x, a), coda_matmul_kn(g, sum, x));
    }
    if (tall) x = turned(s, x);
    return dtype == CODA_F32 ? x : coda_cast(g, x, CODA_F32);
}

static bool read_muon(struct step *s, coda_muon_options *o)
{
    const struct type *t = &s->type;
    if (t->rank < 2 || !dim_is_number(t->dim[t->rank - 2]) || !dim_is_number(t->dim[t->rank - 1])) {
        fail(CODA_E_INVALID, "muon: grad is %s; it must be [.., N, K], where N and K are numbers",
             dims_text(t).s);
        return refuse(s, "grad", s->grad);
    }
    if (!o->products) o->products = CODA_BF16;
    if (!o->steps) o->steps = 5;
    if (o->steps < 1 || o->steps > 100 || !dtype_is_float(o->products)) {
        graph_poison(s->g, CODA_E_INVALID,
                     "muon: there are %d steps of products of dtype %d; must be 1..100, and f32, bf16 or f16",
                     o->steps, (int)o->products);
        return false;
    }
    return true;
}

CODA_API void coda_muon(coda_graph *g, coda_value grad, coda_value p, coda_value m, coda_value w,
                        const coda_muon_options *opt)
{
    coda_muon_options o;
    if (!READ_OPTIONS("muon", coda_muon_options, &o, opt)) return;
    struct step s = STEP("muon", o, 0.02f);
    o.momentum = or_default(o.momentum, 0.95f);
    if (!read_step(&s, grad, p, w) || !read_state(&s, "m", m, false, &s.m) || !read_apart(&s) ||
        !read_number(&s, "momentum", o.momentum, 1) || !read_flag(&s, "heavy_ball", o.heavy_ball) ||
        !read_muon(&s, &o))
        return;
    const int64_t *matrix = s.type.dim + s.type.rank - 2;
    double stretch = matrix[1] && matrix[0] > matrix[1] ? sqrt((double)matrix[0] / (double)matrix[1]) : 1;
    begin(&s);
    coda_value direction = momentum(&s, s.grad, o.momentum, !o.heavy_ball, &m);
    direction = times(&s, orthogonal(&s, direction, o.products, o.steps), CODA_NONE, (float)stretch);
    finish(&s, decayed(&s, direction), m, CODA_NONE);
}

/* ---- The norm ---- */

enum { ROW = 1024 };

/* The sum of [n, 1], as [1]: along rows of a power of two elements, which many blocks read, then one row. */
static coda_value sum_of_rows(graph *g, coda_value rows)
{
    int64_t n = g->status ? 1 : g->node[rows.id - 1].type.dim[0], columns = n & -n;
    if (columns > ROW) columns = ROW;
    if (columns >= 32 && n > columns)
        rows = coda_row_sum(g, coda_reshape(g, rows, 2, (int64_t[]){n / columns, columns}));
    return coda_row_sum(g, coda_reshape(g, rows, 1, (int64_t[]){-1}));
}

/* The sum of [.., 1], whose number is symbolic, as [1]. */
static coda_value sum_of_column(graph *g, coda_value rows)
{
    coda_value sum = coda_reduce_columns(g, "sum", coda_reshape(g, rows, 2, (int64_t[]){-1, 1}));
    return coda_reshape(g, sum, 1, (int64_t[]){1});
}

/* The squares of rows of a value that has some are one row with those of all others; of a vector they are one
 * number. */
static bool add_squares(graph *g, coda_value x, coda_value *sum, coda_value *rows, int *n)
{
    int rank = g->node[x.id - 1].type.rank;
    coda_value s = rank ? x : coda_reshape(g, x, 1, (int64_t[]){1});
    s = coda_reduce(g, "sum_sq", s, CODA_NONE);
    if (rank > 1) {
        coda_value column = coda_reshape(g, s, 2, (int64_t[]){-1, 1});
        if (g->status) return false;
        if (dim_is_number(g->node[column.id - 1].type.dim[0])) return rows[(*n)++] = column, true;
        s = sum_of_column(g, s);
    }
    *sum = sum->id ? coda_add(g, *sum, s) : s;
    return !g->status;
}

static bool takes_norm(graph *g, const coda_value *x, int n)
{
    if (x && n >= 1) return true;
    graph_poison(g, CODA_E_INVALID, "norm_squared: %s; must be 1 or more values",
                 x ? "there are none" : "x is NULL");
    return false;
}

static bool takes_gradient(graph *g, coda_value x, int i)
{
    int index = build_index(g, "norm_squared", x);
    const struct type *t = index >= 0 ? &g->node[index].type : NULL;
    if (g->status) return false;
    if (t && dtype_is_float(t->dtype)) return true;
    fail(CODA_E_INVALID, "norm_squared: x[%d] is %s; it must be f32, bf16 or f16", i,
         t ? type_text(t).s : "CODA_NONE");
    build_refuse(g, NAMES("x"), OPERANDS(x));
    return false;
}

CODA_API coda_value coda_norm_squared(coda_graph *g, const coda_value *x, int n)
{
    coda_value sum = CODA_NONE;
    int k = 0;
    if (!build_ready(g, "norm_squared") || !takes_norm(g, x, n)) return CODA_NONE;
    coda_value *rows = calloc((size_t)n, sizeof *rows);
    if (!rows) return graph_poison(g, CODA_E_MEMORY, "norm_squared: out of memory"), CODA_NONE;
    for (int i = 0; i < n && takes_gradient(g, x[i], i) && add_squares(g, x[i], &sum, rows, &k); i++) {}
    if (k && !g->status) {
        coda_value all = k > 1 ? sum_of_rows(g, coda_concat(g, 0, rows, k))
                               : coda_row_sum(g, coda_reshape(g, rows[0], 1, (int64_t[]){-1}));
        sum = sum.id ? coda_add(g, sum, all) : all;
    }
    free(rows);
    return g->status ? CODA_NONE : sum;
}
