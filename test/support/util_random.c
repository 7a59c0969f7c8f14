/* util_random.c -- draws graphs out of patterns that models are made of, and some that they are not. */
#include "util_random_maker.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { MOST_ELEMENTS = 1 << 16 };

static coda_value maybe_vector(struct maker *m, coda_value v)
{
    return random_chance(&m->r, 65) ? maker_vector(m, v) : CODA_NONE;
}

/* ---- Patterns: each draws its operands and returns its result, or none if it does not fit ---- */

static coda_value grow_linear(struct maker *m)
{
    coda_value y = maker_linear(m, maker_draw(m), maker_size(m));
    return y.id && random_chance(&m->r, 40) ? coda_bias(m->g, y, maker_vector(m, y)) : y;
}

coda_value maker_norm(struct maker *m, coda_value x)
{
    float eps = random_chance(&m->r, 50) ? 1e-5f : 1e-3f;
    if (random_chance(&m->r, 50)) return coda_rms_norm(m->g, x, maybe_vector(m, x), eps);
    return coda_layer_norm(m->g, x, maybe_vector(m, x), maybe_vector(m, x), eps);
}

/* A norm before one to three projections: what the rewriter is for. */
static coda_value grow_normed(struct maker *m)
{
    coda_value x = maker_draw(m), h = maker_norm(m, x), y = h;
    if (random_chance(&m->r, 15)) maker_keep(m, h);
    if (random_chance(&m->r, 10)) h = coda_scale(m->g, h, 0.75f);
    if (random_chance(&m->r, 15) && !m->opt.dtype) h = coda_cast(m->g, h, CODA_BF16);
    for (int64_t n = 1 + random_below(&m->r, 3); n > 0; n--)
        maker_keep(m, y = maker_linear(m, h, maker_size(m)));
    if (y.id && random_chance(&m->r, 40)) y = coda_bias(m->g, y, maker_vector(m, y));
    return y;
}

/* y = x + f(x), which ends on x's own shape. */
static coda_value grow_residual(struct maker *m)
{
    coda_value x = maker_draw(m), h = random_chance(&m->r, 70) && !m->opt.exact ? maker_norm(m, x) : x;
    coda_value up = maker_linear(m, h, maker_size(m));
    if (!up.id) return up;
    return coda_add(m->g, maker_linear(m, coda_silu(m->g, up), maker_columns(m, x)), x);
}

static coda_value (*const unary[])(coda_graph *,
                                   coda_value) = {coda_relu, coda_gelu_erf, coda_gelu_tanh, coda_gelu_quick,
                                                  coda_silu, coda_tanh,     coda_sigmoid,   coda_softplus};

static coda_value grow_unary(struct maker *m)
{
    coda_value x = maker_draw(m);
    int64_t k = random_below(&m->r, ARRAY_SIZE(unary) + 1);
    return k < ARRAY_SIZE(unary) ? unary[k](m->g, x) : coda_relu2(m->g, coda_tanh(m->g, x));
}

/* A partner that broadcasts against x: same shape from the pool, or a leaf of x's shape with some
 * dimensions 1 and some leading ones absent. */
static coda_value partner(struct maker *m, coda_value x)
{
    struct shape s = maker_shape(m, x), p;
    for (int i = 0; i < 4 && random_chance(&m->r, 60); i++) {
        coda_value v = maker_draw(m);
        p = maker_shape(m, v);
        if (p.rank == s.rank && !memcmp(p.dim, s.dim, sizeof *p.dim * (size_t)p.rank)) return v;
    }
    int skip = (int)random_below(&m->r, s.rank);
    for (int d = skip; d < s.rank; d++)
        if (random_chance(&m->r, 30)) s.dim[d] = 1;
    return maker_leaf(m, random_chance(&m->r, 50), s.dtype, s.rank - skip, s.dim + skip);
}

static coda_value grow_binary(struct maker *m)
{
    coda_value x = maker_draw(m), y = partner(m, x);
    switch (random_below(&m->r, 4)) {
    case 0: return coda_add(m->g, x, y);
    case 1: return coda_sub(m->g, x, y);
    case 2: return coda_mul(m->g, x, coda_sigmoid(m->g, y));
    default: return coda_div(m->g, x, coda_softplus(m->g, y));
    }
}

/* Which elements of x: by ids and the columns' numbers, or by a vector. Of nothing computed, as a rounding
 * would make another choice. */
static coda_value mask_of(struct maker *m, coda_value x)
{
    static coda_value (*const compare[])(coda_graph *, coda_value, coda_value) = {
        coda_equal, coda_not_equal, coda_less, coda_less_equal, coda_greater, coda_greater_equal};
    int64_t k = random_below(&m->r, ARRAY_SIZE(compare));
    struct shape s = maker_shape(m, x);
    s.dim[s.rank - 1] = 1;
    coda_value ids = maker_leaf(m, false, CODA_I32, s.rank, s.dim), v = maker_vector(m, x);
    coda_value mask = coda_greater(m->g, v, coda_constant(m->g, CODA_F32, -0.5));
    if (random_chance(&m->r, 30)) return coda_logical_not(m->g, mask);
    coda_value other =
        random_chance(&m->r, 50) ? coda_iota(m->g, maker_columns(m, x)) : coda_constant(m->g, CODA_I32, 50);
    ids = compare[k](m->g, ids, other);
    if (random_chance(&m->r, 50)) return ids;
    return (random_chance(&m->r, 50) ? coda_logical_and : coda_logical_or)(m->g, ids, mask);
}

static coda_value grow_choice(struct maker *m)
{
    static coda_value (*const smooth[])(coda_graph *, coda_value) = {coda_exp, coda_log, coda_sqrt,
                                                                     coda_rsqrt, coda_reciprocal};
    coda_value x = maker_draw(m), y;
    if (!maker_shape(m, x).rank) return x;
    switch (random_below(&m->r, 6)) {
    case 0: y = partner(m, x); return coda_where(m->g, mask_of(m, x), x, y);
    case 1: return coda_where(m->g, mask_of(m, x), x, coda_constant(m->g, CODA_BF16, -0.5));
    case 2: return coda_mul(m->g, x, mask_of(m, x));
    case 3: return coda_minimum(m->g, x, partner(m, x));
    case 4: return coda_maximum(m->g, x, coda_abs(m->g, partner(m, x)));
    default: y = coda_clip(m->g, x, 0.5f, 2); return smooth[random_below(&m->r, ARRAY_SIZE(smooth))](m->g, y);
    }
}

static coda_value grow_scale(struct maker *m)
{
    static const float alpha[] = {1.0f, -1.0f, 0.5f, 0.3f, 1.7f};
    coda_value x = coda_scale(m->g, maker_draw(m), alpha[random_below(&m->r, ARRAY_SIZE(alpha))]);
    return random_chance(&m->r, 40) ? maker_linear(m, x, maker_size(m)) : x;
}

static coda_value scalar(struct maker *m, coda_dtype t)
{
    char name[32];
    snprintf(name, sizeof name, "s%d", m->leaves++);
    return coda_scalar(m->g, name, t);
}

/* A number, or one that is made of numbers, or in the shape of a tensor; a scalar among them. */
static coda_value number(struct maker *m, coda_dtype t)
{
    static const double some[] = {1, -1, 0.5, 0.3, 2, -0.7};
    coda_value c = coda_constant(m->g, t, some[random_below(&m->r, ARRAY_SIZE(some))]);
    if (random_chance(&m->r, 25)) c = scalar(m, random_chance(&m->r, 70) ? CODA_F32 : CODA_I32);
    if (random_chance(&m->r, 25)) c = coda_add(m->g, c, coda_constant(m->g, CODA_F32, 3));
    if (random_chance(&m->r, 15)) c = coda_reshape(m->g, c, 2, (int64_t[]){1, 1});
    return random_chance(&m->r, 10) && !m->opt.dtype ? coda_cast(m->g, c, CODA_F16) : c;
}

static coda_value grow_number(struct maker *m)
{
    coda_value x = maker_draw(m), y;
    struct shape s = maker_shape(m, x);
    coda_value c = number(m, random_chance(&m->r, 40) ? CODA_F32 : s.dtype);
    switch (random_below(&m->r, 6)) {
    case 0: y = coda_add(m->g, x, c); break;
    case 1: y = coda_sub(m->g, c, x); break;
    case 2: y = coda_mul(m->g, x, c); break;
    case 3:
        y = coda_div(m->g, c, coda_add(m->g, coda_softplus(m->g, x), coda_constant(m->g, CODA_F32, 0.5)));
        break;
    case 4: y = coda_mul(m->g, coda_row_mean(m->g, coda_mul(m->g, x, c)), x); break;
    default:
        if (maker_shape(m, c).dtype == CODA_I32) c = coda_cast(m->g, c, CODA_F32);
        y = coda_concat(m->g, 0,
                        (coda_value[]){coda_reshape(m->g, c, 1, (int64_t[]){1}),
                                       coda_reshape(m->g, c, 1, (int64_t[]){1})},
                        2);
    }
    return random_chance(&m->r, 30) ? maker_linear(m, y, maker_size(m)) : y;
}

static coda_value grow_gate(struct maker *m)
{
    static coda_value (*const gate[])(coda_graph *, coda_value, coda_layout) = {
        coda_swiglu, coda_geglu, coda_reglu, coda_glu, coda_geglu_erf};
    coda_value x = maker_linear(m, maker_draw(m), 2 * maker_size(m));
    coda_layout layout = random_chance(&m->r, 50) ? CODA_STACKED : CODA_INTERLEAVED;
    int64_t k = random_below(&m->r, ARRAY_SIZE(gate) + 1);
    if (!x.id) return x;
    return k < ARRAY_SIZE(gate) ? gate[k](m->g, x, layout) : coda_swiglu_clamped(m->g, x, layout, 1.702f, 1);
}

/* A product of dz, to which comes c x: a norm's gradient, but for its constants. */
static coda_value norm_gradient(struct maker *m, coda_value dz, coda_value c)
{
    coda_value dn = maker_linear(m, dz, maker_size(m));
    struct shape s = maker_shape(m, dn);
    coda_value x = maker_leaf(m, false, s.dtype, s.rank, s.dim), gain = maker_vector(m, dn);
    if (random_chance(&m->r, 50)) c = coda_mul(m->g, c, coda_tanh(m->g, coda_row_mean(m->g, x)));
    return coda_add(m->g, coda_mul(m->g, dn, gain), coda_mul(m->g, x, c));
}

/* What the backward pass of a SwiGLU makes of the gradient dy that a product leaves, and of the preactivation
 * z, which is kept: dz, as wide as z, row sums of z dz, and perhaps the forward value again. */
static coda_value grow_gradient(struct maker *m)
{
    coda_graph *g = m->g;
    coda_value dy = maker_linear(m, maker_draw(m), maker_size(m)), one = coda_constant(g, CODA_F32, 1);
    struct shape s = maker_shape(m, dy);
    if (s.rank < 1) return dy;
    int axis = s.rank - 1, turns = random_chance(&m->r, 50);
    int64_t n = s.dim[axis];
    s.dim[axis] *= 2;
    coda_value z = maker_leaf(m, false, s.dtype, s.rank, s.dim);
    coda_value gate = coda_slice(g, z, axis, 0, turns ? 2 * n : n, 1 + turns);
    coda_value up = coda_slice(g, z, axis, turns ? 1 : n, 2 * n, 1 + turns);
    coda_value sig = coda_sigmoid(g, gate), act = coda_mul(g, gate, sig);
    coda_value slope = coda_add(g, sig, coda_mul(g, act, coda_sub(g, one, sig)));
    coda_value d[] = {coda_mul(g, coda_mul(g, dy, up), slope), coda_mul(g, dy, act)};
    coda_value sum = coda_row_sum(g, coda_add(g, coda_mul(g, gate, d[0]), coda_mul(g, up, d[1])));
    coda_value c = coda_scale(g, sum, 1 / (float)(n + 1));
    coda_value dz = (turns ? coda_interleave : coda_concat)(g, axis, d, 2);
    if (random_chance(&m->r, 50)) maker_keep(m, coda_mul(g, act, up));
    if (random_chance(&m->r, 50)) maker_keep(m, c);
    return random_chance(&m->r, 50) ? norm_gradient(m, dz, c) : dz;
}

static coda_value grow_softmax(struct maker *m) { return coda_softmax(m->g, maker_draw(m)); }

static coda_value grow_log_softmax(struct maker *m)
{
    return coda_clip(m->g, coda_log_softmax(m->g, maker_draw(m)), -8, 0);
}

/* A row statistic and its use: norms as a caller would write them by hand. */
static coda_value grow_statistic(struct maker *m)
{
    coda_value x = maker_draw(m), s;
    if (maker_columns(m, x) == 0) return CODA_NONE;
    switch (random_below(&m->r, 5)) {
    case 0: return coda_sub(m->g, x, coda_row_mean(m->g, x));
    case 1: return coda_sub(m->g, x, coda_row_max(m->g, x));
    case 2: s = coda_log_sum_exp(m->g, x); return coda_apply(m->g, "exp_sub", (coda_value[]){x, s}, 2, NULL);
    case 3: s = coda_row_sum(m->g, x); return coda_mul(m->g, x, coda_tanh(m->g, s));
    default:
        s = coda_row_sum(m->g, coda_mul(m->g, x, x));
        s = coda_apply(m->g, "rsqrt_mean", &s, 1, (float[]){1.0f / (float)maker_columns(m, x), 1e-4f});
        return maker_linear(m, coda_mul(m->g, x, s), maker_size(m));
    }
}

/* Which they are may hang on a rounding, what they are does not. */
static coda_value grow_top_k(struct maker *m)
{
    coda_value x = maker_draw(m), y = CODA_NONE;
    int64_t n = maker_columns(m, x), most = MIN(n, 64);
    if (n)
        coda_top_k(m->g, x, 1 + random_below(&m->r, random_chance(&m->r, 80) ? (most + 6) / 7 : most), &y,
                   NULL);
    return y;
}

/* A statistic of columns, and its use: gradients of biases and gains, columns that are centred. */
static coda_value grow_columns(struct maker *m)
{
    static const char *const reduction[] = {"sum", "sum", "max", "mean", "m2", "sum_sq", "log_sum_exp"};
    const char *name = reduction[random_below(&m->r, ARRAY_SIZE(reduction))];
    coda_value x = maker_draw(m), s;
    struct shape t = maker_shape(m, x);
    if (t.rank < 2 || t.dim[t.rank - 2] == 0) return CODA_NONE;
    if (random_chance(&m->r, 30)) x = maker_keep(m, coda_mul(m->g, x, coda_tanh(m->g, x)));
    s = coda_reduce_columns(m->g, name, x);
    if (random_chance(&m->r, 40)) return random_chance(&m->r, 50) ? s : coda_cast(m->g, s, m->dtype);
    return coda_sub(m->g, x, coda_tanh(m->g, s));
}

static coda_value slice_along(struct maker *m, coda_value x, int axis)
{
    int64_t n = maker_shape(m, x).dim[axis], start = random_below(&m->r, (n + 1) / 2);
    int64_t stop = start + random_below(&m->r, n - start + 1), step = 1 + random_below(&m->r, 3);
    return coda_slice(m->g, x, axis, start, MAX(stop, (start + n) / 2), step);
}

static coda_value shuffle(struct maker *m, coda_value x)
{
    int perm[CODA_MAX_RANK], rank = maker_shape(m, x).rank;
    for (int d = 0; d < rank; d++) perm[d] = d;
    for (int d = rank - 1; d > 0; d--) {
        int e = (int)random_below(&m->r, d + 1), swap = perm[d];
        perm[d] = perm[e], perm[e] = swap;
    }
    return coda_transpose(m->g, x, perm);
}

/* Three that interleave; or gate and up as a gradient puts them together, of which one may be sliced. */
static coda_value interleaved(struct maker *m, coda_value x, int axis)
{
    struct shape s = maker_shape(m, x);
    bool two = random_chance(&m->r, 60);
    coda_value in[] = {x, coda_mul(m->g, x, coda_sigmoid(m->g, x)), coda_relu(m->g, x)};
    coda_value y = coda_interleave(m->g, axis, in, two ? 2 : 3);
    if (!s.rank || random_chance(&m->r, 70)) return y;
    int64_t parts = two ? 2 : 3, start = random_below(&m->r, parts),
            step = random_chance(&m->r, 80) ? parts : 1;
    return start < parts * s.dim[axis] ? coda_slice(m->g, y, axis, start, parts * s.dim[axis], step) : y;
}

static coda_value grow_view(struct maker *m)
{
    coda_value x = maker_draw(m);
    struct shape s = maker_shape(m, x);
    int axis = (int)random_below(&m->r, s.rank);
    int64_t rows = 1;
    switch (random_below(&m->r, 4)) {
    case 0: x = slice_along(m, x, axis); return random_chance(&m->r, 40) ? slice_along(m, x, axis) : x;
    case 1:
        if (random_chance(&m->r, 50)) return interleaved(m, x, axis);
        return coda_concat(m->g, axis, (coda_value[]){x, x, coda_relu(m->g, x)}, 3);
    case 2:
        for (int d = 0; d + 1 < s.rank; d++) rows *= s.dim[d];
        return coda_reshape(m->g, x, 2, (int64_t[]){rows, s.rank ? s.dim[s.rank - 1] : 1});
    default: x = shuffle(m, x); return random_chance(&m->r, 40) ? shuffle(m, x) : x;
    }
}

static coda_value grow_cast(struct maker *m)
{
    static const coda_dtype t[] = {CODA_F32, CODA_BF16, CODA_F16};
    coda_value x = maker_draw(m);
    if (m->opt.dtype) return x;
    if (random_chance(&m->r, 25))
        return maker_linear_by(m, coda_cast(m->g, x, CODA_F32), maker_size(m), maker_shape(m, x).dtype);
    if (random_chance(&m->r, 40)) x = coda_cast(m->g, x, t[random_below(&m->r, 3)]);
    return coda_cast(m->g, x, t[random_below(&m->r, 3)]);
}

static coda_value grow_embedding(struct maker *m)
{
    coda_value table = maker_leaf(m, true, m->dtype, 2, (int64_t[]){maker_size(m), maker_size(m)});
    coda_value e = coda_embedding(m->g, table, maker_leaf(m, false, CODA_I32, m->lead_rank, m->lead));
    return random_chance(&m->r, 50) ? coda_add(m->g, e, partner(m, e)) : e;
}

/* Rows added by id; what comes of them is looked up, so that there are as many rows as before. */
static coda_value grow_row_sums(struct maker *m)
{
    static const coda_dtype t[] = {CODA_I32, CODA_I64};
    coda_value x = maker_draw(m);
    struct shape s = maker_shape(m, x);
    coda_value ids = maker_leaf(m, false, t[random_below(&m->r, 2)], s.rank - 1, s.dim);
    coda_value sums = coda_row_sums(m->g, x, ids, maker_size(m));
    if (m->opt.dtype) sums = coda_cast(m->g, sums, m->dtype);
    return coda_embedding(m->g, sums, maker_leaf(m, false, CODA_I32, s.rank - 1, s.dim));
}

static coda_value grow_loss(struct maker *m)
{
    coda_value x = random_chance(&m->r, 60) ? maker_linear(m, maker_draw(m), maker_size(m)) : maker_draw(m);
    struct shape s = maker_shape(m, x);
    if (s.rank < 2 || s.dim[s.rank - 1] == 0) return CODA_NONE;
    coda_cross_entropy_options o = CODA_CROSS_ENTROPY_OPTIONS_INIT;
    o.reduction = (coda_reduction)random_below(&m->r, 3);
    if (random_chance(&m->r, 40)) o.ignore_zero = 1;
    if (shape_elements(&s) == 0 && o.reduction == CODA_REDUCE_MEAN) o.reduction = CODA_REDUCE_SUM;
    return coda_cross_entropy(m->g, x, maker_leaf(m, false, CODA_I32, s.rank - 1, s.dim), &o);
}

/* The same formula twice. */
static coda_value grow_twice(struct maker *m)
{
    coda_value x = maker_draw(m);
    if (random_chance(&m->r, 50)) return coda_add(m->g, coda_tanh(m->g, x), coda_tanh(m->g, x));
    return coda_sub(m->g, coda_scale(m->g, x, 0.5f), coda_relu(m->g, coda_scale(m->g, x, 0.5f)));
}

/* Half of a product's few columns; one column repeats beside what the product was made of. */
static coda_value grow_half(struct maker *m)
{
    coda_value x = maker_draw(m), y = maker_linear(m, x, 2 * (1 + random_below(&m->r, 2)));
    struct shape s = maker_shape(m, y);
    if (s.rank < 2) return CODA_NONE;
    int64_t n = s.dim[s.rank - 1] / 2, first = random_chance(&m->r, 50) ? n : 0;
    coda_value half = coda_sigmoid(m->g, maker_slice(m, y, first, first + n));
    return n == 1 ? coda_mul(m->g, x, half) : half;
}

static double leaky(const double *in, const double *params) { return in[0] > 0 ? in[0] : in[0] * params[0]; }

static coda_value grow_user_map(struct maker *m)
{
    coda_map_def def = {0, "leaky", 1, 1, NULL, leaky, {NULL}};
    coda_value x = maker_draw(m);
    def.source = "DEV static float apply(float x, float slope) { return x > 0 ? x : x * slope; }";
    if (!graph_find_prim(m->g, def.name) && coda_define_map(m->g, &def) != CODA_OK) return CODA_NONE;
    return coda_apply(m->g, "leaky", &x, 1, (float[]){0.125f});
}

static const struct pattern {
    coda_value (*grow)(struct maker *);
    int weight;
    bool exact; /* no inexact rule can match what it makes */
} patterns[] = {
    {grow_linear, 10, true},  {grow_normed, 22, false},   {grow_residual, 12, true},
    {grow_unary, 8, true},    {grow_binary, 12, false},   {grow_scale, 6, false},
    {grow_gate, 8, true},     {maker_rope, 6, true},      {maker_attention, 10, true},
    {grow_softmax, 3, false}, {grow_statistic, 7, false}, {grow_view, 8, true},
    {grow_cast, 5, true},     {grow_embedding, 4, true},  {grow_loss, 4, false},
    {grow_twice, 3, false},   {grow_user_map, 2, true},   {grow_number, 8, false},
    {grow_columns, 6, false}, {grow_gradient, 6, false},  {maker_heads, 6, false},
    {grow_top_k, 5, true},    {grow_choice, 8, false},    {grow_row_sums, 5, true},
};

/* Those that draw from tables, which grow, and what graphs of a fixed seed have not. */
static const struct pattern listed[] = {{maker_map, 0, false},       {maker_map, 0, false},
                                        {maker_reduction, 0, false}, {grow_log_softmax, 0, false},
                                        {grow_half, 0, false},       {maker_conv1d, 0, false},
                                        {maker_adaptive, 0, false}};
enum { LISTED = 10 }; /* of a hundred patterns */

static const struct pattern *draw_pattern(struct maker *m)
{
    int total = 0;
    for (int i = 0; i < ARRAY_SIZE(patterns); i++) total += patterns[i].weight;
    static const struct pattern state = {maker_state, 0, true};
    for (;;) {
        if (m->opt.states && random_chance(&m->r, 30)) return &state;
        if (!m->opt.fixed && !m->opt.exact && random_chance(&m->r, LISTED))
            return &listed[random_below(&m->r, ARRAY_SIZE(listed))];
        int64_t at = random_below(&m->r, total);
        int i = 0;
        while (at >= patterns[i].weight) at -= patterns[i++].weight;
        if (patterns[i].exact || !m->opt.exact) return &patterns[i];
    }
}

static void start(struct maker *m)
{
    static const coda_dtype t[] = {CODA_F32, CODA_BF16, CODA_F16};
    m->dtype = m->opt.dtype ? m->opt.dtype : t[random_below(&m->r, 3)];
    m->lead_rank = random_chance(&m->r, 50) ? 2 : 1;
    m->lead[0] = m->lead_rank == 2 ? random_below(&m->r, 4) : maker_size(m); /* a batch of 0 to 3 */
    m->lead[1] = maker_size(m);
    int64_t dim[3] = {m->lead[0], m->lead[1], 0};
    dim[m->lead_rank] = maker_size(m);
    maker_keep(m, maker_leaf(m, false, m->dtype, m->lead_rank + 1, dim));
}

static void name_output(struct maker *m, coda_value v)
{
    char name[16];
    int64_t stride[CODA_MAX_RANK];
    struct shape s = maker_shape(m, v);
    snprintf(name, sizeof name, "y%d", m->g->outputs);
    bool strided = maker_strides(m, s.rank, s.dim, stride);
    bool sum = s.dtype == CODA_F32 && random_chance(&m->r, 30);
    if (sum && strided) coda_output_add_strided(m->g, name, v, stride);
    else if (sum) coda_output_add(m->g, name, v);
    else if (strided) coda_output_strided(m->g, name, v, stride);
    else coda_output(m->g, name, v);
}

/* A sum over all elements of x, times as many numbers. */
static void name_loss(struct maker *m, coda_value x)
{
    struct shape s = maker_shape(m, x);
    int64_t flat[2] = {1, shape_elements(&s)};
    x = coda_reshape(m->g, coda_cast(m->g, x, CODA_F32), 2, flat);
    coda_value r = coda_input(m->g, "r", CODA_F32, 2, flat);
    coda_output(m->g, "loss", coda_row_sum(m->g, coda_mul(m->g, x, r)));
}

/* Names the last value, most of those that nothing reads, and now and then one that something does. */
static void finish(struct maker *m)
{
    if (m->opt.loss) return name_loss(m, m->pool[m->pooled - 1]);
    name_output(m, m->pool[m->pooled - 1]);
    for (int i = 1; i < m->pooled - 1; i++) {
        bool read = graph_uses(m->g, (int)m->pool[i].id - 1) > 0;
        if (random_chance(&m->r, read ? 4 : 75)) name_output(m, m->pool[i]);
    }
}

graph *random_graph(uint64_t seed, const struct random_options *opt)
{
    struct maker m = {.g = coda_graph_new(), .r = {seed}};
    if (opt) m.opt = *opt;
    if (m.opt.patterns == 0) m.opt.patterns = 8;
    if (m.opt.most_dim == 0) m.opt.most_dim = 48;
    start(&m);
    int n = 1 + (int)random_below(&m.r, m.opt.patterns);
    for (int tries = 0; n > 0 && tries < 64; tries++) {
        coda_value v = draw_pattern(&m)->grow(&m);
        struct shape s = v.id ? maker_shape(&m, v) : (struct shape){.rank = -1};
        if (s.rank < 1 || shape_elements(&s) > MOST_ELEMENTS) continue;
        maker_keep(&m, v);
        n--;
    }
    finish(&m);
    if (coda_graph_status(m.g) != CODA_OK) fprintf(stderr, "random_graph: %s\n", coda_error());
    return m.g;
}
