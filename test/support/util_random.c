/* util_random.c -- draws graphs out of patterns that models are made of, and some that they are not. */
#include "util_random.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* ---- A graph in the making ---- */

enum { POOL = 128, MOST_ELEMENTS = 1 << 16 };

struct maker {
    coda_graph *g;
    struct random r;
    struct random_options opt;
    coda_dtype dtype;
    coda_value pool[POOL]; /* float values to draw operands from */
    int pooled, leaves;
    int lead_rank;
    int64_t lead[2]; /* leading dimensions of the main stream */
};

struct shape {
    int rank;
    int64_t dim[CODA_MAX_RANK];
    coda_dtype dtype;
};

static struct shape shape_of(const struct maker *m, coda_value v)
{
    struct shape s = {0};
    s.rank = coda_value_shape(m->g, v, s.dim, &s.dtype);
    return s;
}

static int64_t columns(const struct maker *m, coda_value v)
{
    struct shape s = shape_of(m, v);
    return s.rank > 0 ? s.dim[s.rank - 1] : 1;
}

static int64_t elements(const struct shape *s)
{
    int64_t n = 1;
    for (int d = 0; d < s->rank; d++) n *= s->dim[d];
    return n;
}

static coda_value keep(struct maker *m, coda_value v)
{
    if (v.id && m->pooled < POOL) m->pool[m->pooled++] = v;
    return v;
}

/* Half of the time one of the last three values, so that chains grow. */
static coda_value draw(struct maker *m)
{
    int recent = MIN(m->pooled, 3);
    if (random_chance(&m->r, 60)) return m->pool[m->pooled - 1 - random_below(&m->r, recent)];
    return m->pool[random_below(&m->r, m->pooled)];
}

static int64_t draw_size(struct maker *m)
{
    static const int64_t size[] = {1,  2,  3,  4,  5,  7,  8,  12,  16,  17,  24,  31,  32,  33,
                                   40, 48, 63, 64, 65, 96, 97, 128, 129, 192, 255, 256, 257, 300};
    int n = 0;
    while (n < ARRAY_SIZE(size) && size[n] <= m->opt.most_dim) n++;
    return size[random_below(&m->r, n)];
}

/* A row pitch with padding or, of a matrix, columns that follow each other. */
static bool draw_strides(struct maker *m, int rank, const int64_t *dim, int64_t *stride)
{
    if (m->opt.dense || rank < 2 || !random_chance(&m->r, 20)) return false;
    bool across = rank == 2 && random_chance(&m->r, 40);
    int64_t step = 1;
    for (int i = 0; i < rank; i++) {
        int d = across ? i : rank - 1 - i;
        stride[d] = step;
        step *= MAX(dim[d], 1);
        if (i == 0) step += random_chance(&m->r, 50) ? 8 * (1 + random_below(&m->r, 2)) : 3;
    }
    return true;
}

static coda_value leaf(struct maker *m, bool weight, coda_dtype t, int rank, const int64_t *dim)
{
    char name[32];
    int64_t stride[CODA_MAX_RANK];
    if (t == CODA_I32 && m->opt.wide && m->leaves % 3) t = CODA_I64;
    snprintf(name, sizeof name, "%s%d", weight ? "w" : dtype_is_index(t) ? "i" : "x", m->leaves++);
    bool strided = draw_strides(m, rank, dim, stride);
    if (weight)
        return strided ? coda_weight_strided(m->g, name, t, rank, dim, stride)
                       : coda_weight(m->g, name, t, rank, dim);
    return strided ? coda_input_strided(m->g, name, t, rank, dim, stride)
                   : coda_input(m->g, name, t, rank, dim);
}

/* A vector for the columns of v: mostly a weight, in fp32 or in v's dtype. */
static coda_value vector(struct maker *m, coda_value v)
{
    struct shape s = shape_of(m, v);
    coda_dtype t = random_chance(&m->r, 30) ? CODA_F32 : s.dtype;
    return leaf(m, random_chance(&m->r, 85), t, 1, (int64_t[]){s.rank ? s.dim[s.rank - 1] : 1});
}

static coda_value maybe_vector(struct maker *m, coda_value v)
{
    return random_chance(&m->r, 65) ? vector(m, v) : CODA_NONE;
}

/* A product with a weight of dtype t. */
static coda_value linear_by(struct maker *m, coda_value x, int64_t n, coda_dtype t)
{
    struct shape s = shape_of(m, x);
    if (s.rank < 2) return CODA_NONE;
    int64_t k = s.dim[s.rank - 1];
    bool kn = random_chance(&m->r, 30);
    int64_t dim[CODA_MAX_RANK];
    int rank = random_chance(&m->r, 12) ? s.rank : 2; /* its own weight for each batch? */
    memcpy(dim, s.dim, sizeof dim);
    dim[rank - 2] = kn ? k : n;
    dim[rank - 1] = kn ? n : k;
    coda_value w = leaf(m, random_chance(&m->r, 85), t, rank, dim);
    if (random_chance(&m->r, 5)) w = coda_scale(m->g, w, 0.5f);
    return kn ? coda_matmul_kn(m->g, x, w) : coda_matmul(m->g, x, w);
}

/* Now and then of two dtypes. */
static coda_value linear(struct maker *m, coda_value x, int64_t n)
{
    bool mixed = random_chance(&m->r, 10) && !m->opt.dtype;
    return linear_by(m, x, n, mixed ? m->dtype : shape_of(m, x).dtype);
}

/* ---- Patterns: each draws its operands and returns its result, or none if it does not fit ---- */

static coda_value grow_linear(struct maker *m)
{
    coda_value y = linear(m, draw(m), draw_size(m));
    return y.id && random_chance(&m->r, 40) ? coda_bias(m->g, y, vector(m, y)) : y;
}

static coda_value norm(struct maker *m, coda_value x)
{
    float eps = random_chance(&m->r, 50) ? 1e-5f : 1e-3f;
    if (random_chance(&m->r, 50)) return coda_rms_norm(m->g, x, maybe_vector(m, x), eps);
    return coda_layer_norm(m->g, x, maybe_vector(m, x), maybe_vector(m, x), eps);
}

/* A norm before one to three projections: what the rewriter is for. */
static coda_value grow_normed(struct maker *m)
{
    coda_value x = draw(m), h = norm(m, x), y = h;
    if (random_chance(&m->r, 15)) keep(m, h);
    if (random_chance(&m->r, 10)) h = coda_scale(m->g, h, 0.75f);
    if (random_chance(&m->r, 15) && !m->opt.dtype) h = coda_cast(m->g, h, CODA_BF16);
    for (int64_t n = 1 + random_below(&m->r, 3); n > 0; n--) keep(m, y = linear(m, h, draw_size(m)));
    if (y.id && random_chance(&m->r, 40)) y = coda_bias(m->g, y, vector(m, y));
    return y;
}

/* y = x + f(x), which ends on x's own shape. */
static coda_value grow_residual(struct maker *m)
{
    coda_value x = draw(m), h = random_chance(&m->r, 70) && !m->opt.exact ? norm(m, x) : x;
    coda_value up = linear(m, h, draw_size(m));
    if (!up.id) return up;
    return coda_add(m->g, linear(m, coda_silu(m->g, up), columns(m, x)), x);
}

static coda_value (*const unary[])(coda_graph *,
                                   coda_value) = {coda_relu, coda_gelu_erf, coda_gelu_tanh, coda_gelu_quick,
                                                  coda_silu, coda_tanh,     coda_sigmoid,   coda_softplus};

static coda_value grow_unary(struct maker *m)
{
    coda_value x = draw(m);
    int64_t k = random_below(&m->r, ARRAY_SIZE(unary) + 1);
    return k < ARRAY_SIZE(unary) ? unary[k](m->g, x) : coda_relu2(m->g, coda_tanh(m->g, x));
}

/* A partner that broadcasts against x: same shape from the pool, or a leaf of x's shape with some
 * dimensions 1 and some leading ones absent. */
static coda_value partner(struct maker *m, coda_value x)
{
    struct shape s = shape_of(m, x), p;
    for (int i = 0; i < 4 && random_chance(&m->r, 60); i++) {
        coda_value v = draw(m);
        p = shape_of(m, v);
        if (p.rank == s.rank && !memcmp(p.dim, s.dim, sizeof *p.dim * (size_t)p.rank)) return v;
    }
    int skip = (int)random_below(&m->r, s.rank);
    for (int d = skip; d < s.rank; d++)
        if (random_chance(&m->r, 30)) s.dim[d] = 1;
    return leaf(m, random_chance(&m->r, 50), s.dtype, s.rank - skip, s.dim + skip);
}

static coda_value grow_binary(struct maker *m)
{
    coda_value x = draw(m), y = partner(m, x);
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
    struct shape s = shape_of(m, x);
    s.dim[s.rank - 1] = 1;
    coda_value ids = leaf(m, false, CODA_I32, s.rank, s.dim), v = vector(m, x);
    coda_value mask = coda_greater(m->g, v, coda_constant(m->g, CODA_F32, -0.5));
    if (random_chance(&m->r, 30)) return coda_logical_not(m->g, mask);
    coda_value other =
        random_chance(&m->r, 50) ? coda_iota(m->g, columns(m, x)) : coda_constant(m->g, CODA_I32, 50);
    ids = compare[k](m->g, ids, other);
    if (random_chance(&m->r, 50)) return ids;
    return (random_chance(&m->r, 50) ? coda_logical_and : coda_logical_or)(m->g, ids, mask);
}

static coda_value grow_choice(struct maker *m)
{
    static coda_value (*const smooth[])(coda_graph *, coda_value) = {coda_exp, coda_log, coda_sqrt,
                                                                     coda_rsqrt, coda_reciprocal};
    coda_value x = draw(m), y;
    if (!shape_of(m, x).rank) return x;
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
    coda_value x = coda_scale(m->g, draw(m), alpha[random_below(&m->r, ARRAY_SIZE(alpha))]);
    return random_chance(&m->r, 40) ? linear(m, x, draw_size(m)) : x;
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
    coda_value x = draw(m), y;
    struct shape s = shape_of(m, x);
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
        if (shape_of(m, c).dtype == CODA_I32) c = coda_cast(m->g, c, CODA_F32);
        y = coda_concat(m->g, 0,
                        (coda_value[]){coda_reshape(m->g, c, 1, (int64_t[]){1}),
                                       coda_reshape(m->g, c, 1, (int64_t[]){1})},
                        2);
    }
    return random_chance(&m->r, 30) ? linear(m, y, draw_size(m)) : y;
}

static coda_value grow_gate(struct maker *m)
{
    static coda_value (*const gate[])(coda_graph *, coda_value, coda_layout) = {
        coda_swiglu, coda_geglu, coda_reglu, coda_glu, coda_geglu_erf};
    coda_value x = linear(m, draw(m), 2 * draw_size(m));
    coda_layout layout = random_chance(&m->r, 50) ? CODA_STACKED : CODA_INTERLEAVED;
    int64_t k = random_below(&m->r, ARRAY_SIZE(gate) + 1);
    if (!x.id) return x;
    return k < ARRAY_SIZE(gate) ? gate[k](m->g, x, layout) : coda_swiglu_clamped(m->g, x, layout, 1.702f, 1);
}

/* A product of dz, to which comes c x: a norm's gradient, but for its constants. */
static coda_value norm_gradient(struct maker *m, coda_value dz, coda_value c)
{
    coda_value dn = linear(m, dz, draw_size(m));
    struct shape s = shape_of(m, dn);
    coda_value x = leaf(m, false, s.dtype, s.rank, s.dim), gain = vector(m, dn);
    if (random_chance(&m->r, 50)) c = coda_mul(m->g, c, coda_tanh(m->g, coda_row_mean(m->g, x)));
    return coda_add(m->g, coda_mul(m->g, dn, gain), coda_mul(m->g, x, c));
}

/* What the backward pass of a SwiGLU makes of the gradient dy that a product leaves, and of the preactivation
 * z, which is kept: dz, as wide as z, row sums of z dz, and perhaps the forward value again. */
static coda_value grow_gradient(struct maker *m)
{
    coda_graph *g = m->g;
    coda_value dy = linear(m, draw(m), draw_size(m)), one = coda_constant(g, CODA_F32, 1);
    struct shape s = shape_of(m, dy);
    if (s.rank < 1) return dy;
    int axis = s.rank - 1, turns = random_chance(&m->r, 50);
    int64_t n = s.dim[axis];
    s.dim[axis] *= 2;
    coda_value z = leaf(m, false, s.dtype, s.rank, s.dim);
    coda_value gate = coda_slice(g, z, axis, 0, turns ? 2 * n : n, 1 + turns);
    coda_value up = coda_slice(g, z, axis, turns ? 1 : n, 2 * n, 1 + turns);
    coda_value sig = coda_sigmoid(g, gate), act = coda_mul(g, gate, sig);
    coda_value slope = coda_add(g, sig, coda_mul(g, act, coda_sub(g, one, sig)));
    coda_value d[] = {coda_mul(g, coda_mul(g, dy, up), slope), coda_mul(g, dy, act)};
    coda_value sum = coda_row_sum(g, coda_add(g, coda_mul(g, gate, d[0]), coda_mul(g, up, d[1])));
    coda_value c = coda_scale(g, sum, 1 / (float)(n + 1));
    coda_value dz = (turns ? coda_interleave : coda_concat)(g, axis, d, 2);
    if (random_chance(&m->r, 50)) keep(m, coda_mul(g, act, up));
    if (random_chance(&m->r, 50)) keep(m, c);
    return random_chance(&m->r, 50) ? norm_gradient(m, dz, c) : dz;
}

/* The frequencies of several axes, now and then: sections fit both ways. */
static void draw_sections(struct maker *m, int64_t pairs, coda_rope_options *o)
{
    int axes = 2 + (int)random_below(&m->r, 3);
    if (pairs < axes || random_chance(&m->r, 70)) return;
    o->sections[0] = pairs;
    o->interleave_sections = random_chance(&m->r, 50);
    for (int i = 1; i < axes; o->sections[0] -= o->sections[i++])
        o->sections[i] = 1 + random_below(&m->r, pairs / axes);
}

static coda_rope_options rope_options(struct maker *m, int64_t head_dim)
{
    coda_rope_options o = CODA_ROPE_OPTIONS_INIT;
    o.head_dim = head_dim;
    if (random_chance(&m->r, 30)) o.rotary = 2 * (1 + random_below(&m->r, head_dim / 2));
    if (random_chance(&m->r, 30)) o.base = 500000.0f;
    o.style = random_chance(&m->r, 50) ? CODA_ROPE_HALF : CODA_ROPE_INTERLEAVED;
    o.inverse = random_chance(&m->r, 20);
    if (random_chance(&m->r, 20)) o.scale = 0.5f + (float)random_below(&m->r, 4) / 2;
    int64_t pairs = (o.rotary ? o.rotary : head_dim) / 2;
    if (random_chance(&m->r, 25)) o.frequencies = leaf(m, random_chance(&m->r, 50), CODA_F32, 1, &pairs);
    draw_sections(m, pairs, &o);
    return o;
}

/* Of x's rows, [.., T, axes] with sections; now and then made of floats. */
static coda_value positions(struct maker *m, coda_value x, const coda_rope_options *o)
{
    struct shape s = shape_of(m, x);
    int axes = 0;
    while (axes < 4 && o->sections[axes]) axes++;
    if (s.rank < 2 || (!axes && random_chance(&m->r, 60))) return CODA_NONE;
    int skip = random_chance(&m->r, 50) ? s.rank - 2 : 0, rank = s.rank - skip - !axes;
    s.dim[s.rank - 1] = axes;
    if (random_chance(&m->r, 85)) return leaf(m, false, CODA_I32, rank, s.dim + skip);
    return coda_cast(m->g, coda_scale(m->g, leaf(m, false, CODA_F32, rank, s.dim + skip), 64), CODA_I32);
}

static coda_value grow_rope(struct maker *m)
{
    int64_t head_dim = 2 * (1 + random_below(&m->r, 8)), heads = 1 + random_below(&m->r, 4);
    coda_value x = linear(m, draw(m), head_dim * heads);
    if (!x.id) return x;
    coda_rope_options o = rope_options(m, head_dim);
    if (random_chance(&m->r, 30)) o.heads = 1 + random_below(&m->r, heads);
    if (heads == 1 && random_chance(&m->r, 50)) o.head_dim = 0;
    return coda_rope(m->g, x, positions(m, x, &o), &o);
}

static coda_value last_slice(struct maker *m, coda_value x, int64_t from, int64_t to)
{
    return coda_slice(m->g, x, shape_of(m, x).rank - 1, from, to, 1);
}

/* A statistic, or a norm, of each head of a slice of x. */
static coda_value headed(struct maker *m, coda_value x, int64_t head_dim)
{
    struct shape s = shape_of(m, x);
    int64_t dims[CODA_MAX_RANK];
    memcpy(dims, s.dim, sizeof dims);
    dims[s.rank - 1] /= head_dim, dims[s.rank] = head_dim;
    coda_value h = coda_reshape(m->g, x, s.rank + 1, dims);
    if (random_chance(&m->r, 15))
        return random_chance(&m->r, 50) ? coda_row_max(m->g, h) : coda_row_sum(m->g, h);
    coda_value gain = random_chance(&m->r, 70) ? leaf(m, true, CODA_F32, 1, &head_dim) : CODA_NONE;
    h = random_chance(&m->r, 70) ? coda_rms_norm(m->g, h, gain, 1e-5f)
                                 : coda_layer_norm(m->g, h, gain, CODA_NONE, 1e-5f);
    return random_chance(&m->r, 90) ? coda_reshape(m->g, h, s.rank, s.dim) : h;
}

/* QK-norm: those of some slices of a product, rotated or not; of whole spans of columns, and others. */
static coda_value grow_heads(struct maker *m)
{
    static const int64_t size[] = {16, 32, 64, 64, 20};
    int64_t hd = size[random_below(&m->r, 5)], unit = 64 % hd == 0 && random_chance(&m->r, 80) ? 64 : hd;
    int64_t nq = unit * (1 + random_below(&m->r, 2)), nk = unit;
    coda_value x = linear(m, draw(m), nq + 2 * nk);
    struct shape s = shape_of(m, x);
    if (!x.id || s.rank < 2 || s.rank + 1 > CODA_MAX_RANK) return CODA_NONE;
    coda_value q = headed(m, last_slice(m, x, 0, nq), hd), k = headed(m, last_slice(m, x, nq, nq + nk), hd);
    coda_rope_options rope = rope_options(m, hd);
    coda_value at = positions(m, x, &rope), v = last_slice(m, x, nq + nk, nq + 2 * nk);
    bool turns = random_chance(&m->r, 60);
    if (turns && shape_of(m, q).rank == s.rank) q = coda_rope(m->g, q, at, &rope);
    if (turns && shape_of(m, k).rank == s.rank) k = coda_rope(m->g, k, at, &rope);
    keep(m, q);
    keep(m, k);
    return random_chance(&m->r, 50) ? v : coda_scale(m->g, v, 0.5f);
}

/* The rows of q as those of some sequences, whose keys are leaves. */
static void pack(struct maker *m, coda_value q, int64_t columns, coda_value *k, coda_value *v,
                 coda_attention_options *o, coda_value *lengths)
{
    int64_t batch = random_below(&m->r, 5), starts = batch + 1, keys[] = {batch, draw_size(m), columns};
    o->starts = leaf(m, false, CODA_I32, 1, &starts);
    *lengths = random_chance(&m->r, 50) ? leaf(m, false, CODA_I32, 1, &batch) : CODA_NONE;
    *k = leaf(m, false, shape_of(m, q).dtype, 3, keys);
    *v = random_chance(&m->r, 20) ? *k : leaf(m, false, shape_of(m, q).dtype, 3, keys);
}

static double fade(const double *in, const double *p)
{
    return in[0] - p[0] * fmin(fabs(in[1] - in[2]), 16) * (in[3] + 1);
}
/* A map of scores: the graph's own, or the library's. */
static void draw_score(struct maker *m, coda_attention_options *o)
{
    coda_map_def def = {0, "fade", 4, 1, NULL, fade};
    def.source = "DEV static float apply(float s, float at, float key, float head, float by)\n"
                 "{ return fmaf(-by * (head + 1.0f), fminf(fabsf(at - key), 16.0f), s); }";
    bool own = random_chance(&m->r, 60);
    if (own && !graph_find_prim(m->g, "fade") && coda_define_map(m->g, &def) != CODA_OK) return;
    o->score = own ? "fade" : "softcap", o->score_params[0] = own ? 0.0625f : 2.0f;
}

/* norm -> fused q k v -> rope on q and k -> attention, with or without a batch. */
static coda_value grow_attention(struct maker *m)
{
    static const int64_t size[] = {2, 4, 8, 10, 16};
    coda_attention_options o = CODA_ATTENTION_OPTIONS_INIT;
    int64_t group = 1 + random_below(&m->r, 3), kv = 1 + random_below(&m->r, 2);
    int64_t hd = size[random_below(&m->r, 5)], nq = kv * group * hd, nk = kv * hd;
    coda_value x = !m->opt.exact && random_chance(&m->r, 50) ? norm(m, draw(m)) : draw(m);
    coda_value qkv = linear(m, x, nq + 2 * nk);
    struct shape s = shape_of(m, qkv);
    if (s.rank != 2 && s.rank != 3) return CODA_NONE;
    int64_t atv = random_chance(&m->r, 20) ? 0 : nq + nk, atq = atv ? 0 : nk; /* v first, now and then */
    coda_value q = last_slice(m, qkv, atq, atq + nq), k = last_slice(m, qkv, atq + nq, atq + nq + nk);
    coda_value v = last_slice(m, qkv, atv, atv + nk), lengths = CODA_NONE;
    if (random_chance(&m->r, 70)) {
        coda_rope_options rope = rope_options(m, hd);
        coda_value at = positions(m, qkv, &rope);
        q = coda_rope(m->g, q, at, &rope);
        if (random_chance(&m->r, 15)) rope.base = 1000.0f;
        if (random_chance(&m->r, 10)) rope.inverse = !rope.inverse;
        k = coda_rope(m->g, k, at, &rope);
    }
    if (s.rank == 3 && random_chance(&m->r, 30)) lengths = leaf(m, false, CODA_I32, 1, s.dim);
    if (s.rank == 2 && random_chance(&m->r, 30)) pack(m, q, nk, &k, &v, &o, &lengths);
    o.heads = kv * group, o.kv_heads = kv, o.causal = random_chance(&m->r, 60);
    o.window = random_chance(&m->r, 25) ? 1 + random_below(&m->r, 20) : 0;
    o.align = (coda_attention_align)random_below(&m->r, 4);
    if (o.starts.id && !o.align) o.align = CODA_ALIGN_LENGTH;
    o.scale = random_chance(&m->r, 20) ? 0.25f : 0.0f, o.softcap = random_chance(&m->r, 10) ? 3.0f : 0.0f;
    if (!o.causal && random_chance(&m->r, 20)) o.ahead = 1 + random_below(&m->r, 20);
    if (random_chance(&m->r, 10)) o.slopes = leaf(m, true, CODA_F32, 1, &o.heads);
    if (random_chance(&m->r, 10)) o.sinks = leaf(m, true, CODA_F32, 1, &o.heads);
    if (random_chance(&m->r, 15)) draw_score(m, &o);
    int64_t pairs[] = {o.heads, s.dim[s.rank - 2], shape_of(m, k).dim[shape_of(m, k).rank - 2]};
    if (random_chance(&m->r, 15)) o.bias = leaf(m, true, s.dtype, 3, pairs);
    s.dim[s.rank - 1] = 2;
    if (random_chance(&m->r, 10)) o.ranges = leaf(m, false, CODA_I32, s.rank, s.dim);
    coda_value sums;
    if (!random_chance(&m->r, 10)) return coda_attention(m->g, q, k, v, lengths, &o);
    coda_value y = coda_attention_lse(m->g, q, k, v, lengths, &o, &sums);
    keep(m, sums);
    return random_chance(&m->r, 80) ? y : sums;
}

static coda_value grow_softmax(struct maker *m) { return coda_softmax(m->g, draw(m)); }

/* A row statistic and its use: norms as a caller would write them by hand. */
static coda_value grow_statistic(struct maker *m)
{
    coda_value x = draw(m), s;
    if (columns(m, x) == 0) return CODA_NONE;
    switch (random_below(&m->r, 5)) {
    case 0: return coda_sub(m->g, x, coda_row_mean(m->g, x));
    case 1: return coda_sub(m->g, x, coda_row_max(m->g, x));
    case 2: s = coda_log_sum_exp(m->g, x); return coda_apply(m->g, "exp_sub", (coda_value[]){x, s}, 2, NULL);
    case 3: s = coda_row_sum(m->g, x); return coda_mul(m->g, x, coda_tanh(m->g, s));
    default:
        s = coda_row_sum(m->g, coda_mul(m->g, x, x));
        s = coda_apply(m->g, "rsqrt_mean", &s, 1, (float[]){1.0f / (float)columns(m, x), 1e-4f});
        return linear(m, coda_mul(m->g, x, s), draw_size(m));
    }
}

/* Which they are may hang on a rounding, what they are does not. */
static coda_value grow_top_k(struct maker *m)
{
    coda_value x = draw(m), y = CODA_NONE;
    int64_t n = columns(m, x), most = MIN(n, 64);
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
    coda_value x = draw(m), s;
    struct shape t = shape_of(m, x);
    if (t.rank < 2 || t.dim[t.rank - 2] == 0) return CODA_NONE;
    if (random_chance(&m->r, 30)) x = keep(m, coda_mul(m->g, x, coda_tanh(m->g, x)));
    s = coda_reduce_columns(m->g, name, x);
    if (random_chance(&m->r, 40)) return random_chance(&m->r, 50) ? s : coda_cast(m->g, s, m->dtype);
    return coda_sub(m->g, x, coda_tanh(m->g, s));
}

static coda_value slice_along(struct maker *m, coda_value x, int axis)
{
    int64_t n = shape_of(m, x).dim[axis], start = random_below(&m->r, (n + 1) / 2);
    int64_t stop = start + random_below(&m->r, n - start + 1), step = 1 + random_below(&m->r, 3);
    return coda_slice(m->g, x, axis, start, MAX(stop, (start + n) / 2), step);
}

static coda_value shuffle(struct maker *m, coda_value x)
{
    int perm[CODA_MAX_RANK], rank = shape_of(m, x).rank;
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
    struct shape s = shape_of(m, x);
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
    coda_value x = draw(m);
    struct shape s = shape_of(m, x);
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
    coda_value x = draw(m);
    if (m->opt.dtype) return x;
    if (random_chance(&m->r, 25))
        return linear_by(m, coda_cast(m->g, x, CODA_F32), draw_size(m), shape_of(m, x).dtype);
    if (random_chance(&m->r, 40)) x = coda_cast(m->g, x, t[random_below(&m->r, 3)]);
    return coda_cast(m->g, x, t[random_below(&m->r, 3)]);
}

static coda_value grow_embedding(struct maker *m)
{
    coda_value table = leaf(m, true, m->dtype, 2, (int64_t[]){draw_size(m), draw_size(m)});
    coda_value e = coda_embedding(m->g, table, leaf(m, false, CODA_I32, m->lead_rank, m->lead));
    return random_chance(&m->r, 50) ? coda_add(m->g, e, partner(m, e)) : e;
}

static coda_value grow_loss(struct maker *m)
{
    coda_value x = random_chance(&m->r, 60) ? linear(m, draw(m), draw_size(m)) : draw(m);
    struct shape s = shape_of(m, x);
    if (s.rank < 2 || s.dim[s.rank - 1] == 0) return CODA_NONE;
    coda_cross_entropy_options o = CODA_CROSS_ENTROPY_OPTIONS_INIT;
    o.reduction = (coda_reduction)random_below(&m->r, 3);
    if (random_chance(&m->r, 40)) o.ignore_zero = 1;
    if (elements(&s) == 0 && o.reduction == CODA_REDUCE_MEAN) o.reduction = CODA_REDUCE_SUM;
    return coda_cross_entropy(m->g, x, leaf(m, false, CODA_I32, s.rank - 1, s.dim), &o);
}

/* The same formula twice. */
static coda_value grow_twice(struct maker *m)
{
    coda_value x = draw(m);
    if (random_chance(&m->r, 50)) return coda_add(m->g, coda_tanh(m->g, x), coda_tanh(m->g, x));
    return coda_sub(m->g, coda_scale(m->g, x, 0.5f), coda_relu(m->g, coda_scale(m->g, x, 0.5f)));
}

static double leaky(const double *in, const double *params) { return in[0] > 0 ? in[0] : in[0] * params[0]; }

static coda_value grow_user_map(struct maker *m)
{
    coda_map_def def = {0, "leaky", 1, 1, NULL, leaky};
    coda_value x = draw(m);
    def.source = "DEV static float apply(float x, float slope) { return x > 0 ? x : x * slope; }";
    if (!graph_find_prim(m->g, def.name) && coda_define_map(m->g, &def) != CODA_OK) return CODA_NONE;
    return coda_apply(m->g, "leaky", &x, 1, (float[]){0.125f});
}

/* Some rows of x, cut to w columns, written to a state; one of rank 4 has its heads apart. */
static coda_value append_some(struct maker *m, coda_value state, coda_value x, int64_t w)
{
    coda_append_options o = CODA_APPEND_OPTIONS_INIT;
    struct shape s = shape_of(m, x);
    if (shape_of(m, state).rank == 4) o.layout = CODA_LAYOUT_HND;
    int64_t n = s.dim[s.rank - 1], from = random_below(&m->r, n - w + 1);
    if (n > w) x = last_slice(m, x, from, from + w);
    return coda_append(m->g, state, x, leaf(m, false, CODA_I32, s.rank - 1, s.dim), &o);
}

/* What a version of a state says, as a value that does not look at it. */
static coda_value look(struct maker *m, coda_value state)
{
    struct shape s = shape_of(m, state);
    coda_value x = random_chance(&m->r, 50) ? coda_slice(m->g, state, 0, 0, (s.dim[0] + 1) / 2, 1) : state;
    if (random_chance(&m->r, 30)) return coda_reduce_columns(m->g, "max", x);
    return random_chance(&m->r, 40) ? linear(m, x, draw_size(m)) : coda_tanh(m->g, x);
}

/* [slots, columns] as [pages, heads, page, columns of a head]. */
static void cut_heads(struct maker *m, int64_t *dim)
{
    int64_t heads = 1 + random_below(&m->r, 4), page = 1 + random_below(&m->r, 5);
    while (dim[1] % heads) heads--;
    dim[3] = dim[1] / heads, dim[1] = heads, dim[2] = page, dim[0] = CEIL_DIV(dim[0], page);
}

/* A cache in 8 bits: of rows that each way of running has alike, else a rounding may turn. */
static coda_value grow_narrow(struct maker *m)
{
    struct shape s = shape_of(m, draw(m));
    int64_t dim[4] = {1 + draw_size(m), s.rank > 0 ? s.dim[s.rank - 1] : 0}, w = dim[1];
    int rank = random_chance(&m->r, 50) ? 4 : 2;
    char name[32];
    if (s.rank < 2 || w == 0) return CODA_NONE;
    coda_value rows = leaf(m, false, m->dtype, s.rank, s.dim);
    if (rank == 4) cut_heads(m, dim);
    snprintf(name, sizeof name, "k%d", m->leaves++);
    coda_value v = coda_state(m->g, name, CODA_F8E4M3, rank, dim);
    if (random_chance(&m->r, 40)) keep(m, coda_cast(m->g, v, m->dtype));
    v = append_some(m, v, rows, w);
    if (random_chance(&m->r, 40)) keep(m, coda_cast(m->g, v, CODA_F32));
    if (random_chance(&m->r, 40)) v = append_some(m, v, coda_scale(m->g, rows, 0.5f), w);
    return coda_cast(m->g, v, m->dtype);
}

/* A cache that is read, appended to, read, and perhaps appended to or assigned to again. */
static coda_value grow_state(struct maker *m)
{
    coda_value x = draw(m), v;
    if (random_chance(&m->r, 20)) return grow_narrow(m);
    if (random_chance(&m->r, 70)) x = linear(m, x, draw_size(m));
    struct shape s = shape_of(m, x);
    char name[32];
    int64_t stride[CODA_MAX_RANK], dim[4] = {1 + draw_size(m), s.rank > 0 ? s.dim[s.rank - 1] : 0}, w;
    if (s.rank < 2 || dim[1] == 0) return CODA_NONE;
    if (random_chance(&m->r, 40)) dim[1] = (dim[1] + 1) / 2;
    int rank = random_chance(&m->r, 30) ? 4 : 2;
    w = dim[1];
    if (rank == 4) cut_heads(m, dim);
    snprintf(name, sizeof name, "k%d", m->leaves++);
    v = draw_strides(m, rank, dim, stride) ? coda_state_strided(m->g, name, s.dtype, rank, dim, stride)
                                           : coda_state(m->g, name, s.dtype, rank, dim);
    if (random_chance(&m->r, 40)) keep(m, look(m, v));
    if (random_chance(&m->r, 80)) v = append_some(m, v, x, w);
    if (random_chance(&m->r, 40)) keep(m, look(m, v));
    if (random_chance(&m->r, 30)) v = append_some(m, v, random_chance(&m->r, 50) ? coda_tanh(m->g, x) : x, w);
    if (random_chance(&m->r, 30)) v = coda_assign(m->g, v, coda_scale(m->g, v, 0.5f));
    return random_chance(&m->r, 20) ? v : look(m, v);
}

static const struct pattern {
    coda_value (*grow)(struct maker *);
    int weight;
    bool exact; /* no inexact rule can match what it makes */
} patterns[] = {
    {grow_linear, 10, true},  {grow_normed, 22, false},   {grow_residual, 12, true},
    {grow_unary, 8, true},    {grow_binary, 12, false},   {grow_scale, 6, false},
    {grow_gate, 8, true},     {grow_rope, 6, true},       {grow_attention, 10, true},
    {grow_softmax, 3, false}, {grow_statistic, 7, false}, {grow_view, 8, true},
    {grow_cast, 5, true},     {grow_embedding, 4, true},  {grow_loss, 4, false},
    {grow_twice, 3, false},   {grow_user_map, 2, true},   {grow_number, 8, false},
    {grow_columns, 6, false}, {grow_gradient, 6, false},  {grow_heads, 6, false},
    {grow_top_k, 5, true},    {grow_choice, 8, false},
};

static const struct pattern *draw_pattern(struct maker *m)
{
    int total = 0;
    for (int i = 0; i < ARRAY_SIZE(patterns); i++) total += patterns[i].weight;
    static const struct pattern state = {grow_state, 0, true};
    for (;;) {
        if (m->opt.states && random_chance(&m->r, 30)) return &state;
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
    m->lead[0] = m->lead_rank == 2 ? random_below(&m->r, 4) : draw_size(m); /* a batch of 0 to 3 */
    m->lead[1] = draw_size(m);
    int64_t dim[3] = {m->lead[0], m->lead[1], 0};
    dim[m->lead_rank] = draw_size(m);
    keep(m, leaf(m, false, m->dtype, m->lead_rank + 1, dim));
}

static void name_output(struct maker *m, coda_value v)
{
    char name[16];
    int64_t stride[CODA_MAX_RANK];
    struct shape s = shape_of(m, v);
    snprintf(name, sizeof name, "y%d", m->g->outputs);
    bool strided = draw_strides(m, s.rank, s.dim, stride);
    bool sum = s.dtype == CODA_F32 && random_chance(&m->r, 30);
    if (sum && strided) coda_output_add_strided(m->g, name, v, stride);
    else if (sum) coda_output_add(m->g, name, v);
    else if (strided) coda_output_strided(m->g, name, v, stride);
    else coda_output(m->g, name, v);
}

/* Names the last value, most of those that nothing reads, and now and then one that something does. */
static void finish(struct maker *m)
{
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
        struct shape s = v.id ? shape_of(&m, v) : (struct shape){.rank = -1};
        if (s.rank < 1 || elements(&s) > MOST_ELEMENTS) continue;
        keep(&m, v);
        n--;
    }
    finish(&m);
    if (coda_graph_status(m.g) != CODA_OK) fprintf(stderr, "random_graph: %s\n", coda_error());
    return m.g;
}
