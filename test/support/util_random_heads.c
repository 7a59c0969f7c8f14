/* util_random_heads.c -- patterns of random graphs whose columns are heads: turns, norms, attention. */
#include "util_random_maker.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

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
    if (random_chance(&m->r, 25))
        o.frequencies = maker_leaf(m, random_chance(&m->r, 50), CODA_F32, 1, &pairs);
    draw_sections(m, pairs, &o);
    return o;
}

/* Of x's rows, [.., T, axes] with sections; now and then made of floats. */
static coda_value positions(struct maker *m, coda_value x, const coda_rope_options *o)
{
    struct shape s = maker_shape(m, x);
    int axes = 0;
    while (axes < 4 && o->sections[axes]) axes++;
    if (s.rank < 2 || (!axes && random_chance(&m->r, 60))) return CODA_NONE;
    int skip = random_chance(&m->r, 50) ? s.rank - 2 : 0, rank = s.rank - skip - !axes;
    s.dim[s.rank - 1] = axes;
    if (random_chance(&m->r, 85)) return maker_leaf(m, false, CODA_I32, rank, s.dim + skip);
    return coda_cast(m->g, coda_scale(m->g, maker_leaf(m, false, CODA_F32, rank, s.dim + skip), 64),
                     CODA_I32);
}

coda_value maker_rope(struct maker *m)
{
    int64_t head_dim = 2 * (1 + random_below(&m->r, 8)), heads = 1 + random_below(&m->r, 4);
    coda_value x = maker_linear(m, maker_draw(m), head_dim * heads);
    if (!x.id) return x;
    coda_rope_options o = rope_options(m, head_dim);
    if (random_chance(&m->r, 30)) o.heads = 1 + random_below(&m->r, heads);
    if (heads == 1 && random_chance(&m->r, 50)) o.head_dim = 0;
    return coda_rope(m->g, x, positions(m, x, &o), &o);
}

/* A statistic, or a norm, of each head of a slice of x. */
static coda_value headed(struct maker *m, coda_value x, int64_t head_dim)
{
    struct shape s = maker_shape(m, x);
    int64_t dims[CODA_MAX_RANK];
    memcpy(dims, s.dim, sizeof dims);
    dims[s.rank - 1] /= head_dim, dims[s.rank] = head_dim;
    coda_value h = coda_reshape(m->g, x, s.rank + 1, dims);
    if (random_chance(&m->r, 15))
        return random_chance(&m->r, 50) ? coda_row_max(m->g, h) : coda_row_sum(m->g, h);
    coda_value gain = random_chance(&m->r, 70) ? maker_leaf(m, true, CODA_F32, 1, &head_dim) : CODA_NONE;
    h = random_chance(&m->r, 70) ? coda_rms_norm(m->g, h, gain, 1e-5f)
                                 : coda_layer_norm(m->g, h, gain, CODA_NONE, 1e-5f);
    return random_chance(&m->r, 90) ? coda_reshape(m->g, h, s.rank, s.dim) : h;
}

/* QK-norm: those of some slices of a product, rotated or not; of whole spans of columns, and others. */
coda_value maker_heads(struct maker *m)
{
    static const int64_t size[] = {16, 32, 64, 64, 20};
    int64_t hd = size[random_below(&m->r, 5)], unit = 64 % hd == 0 && random_chance(&m->r, 80) ? 64 : hd;
    int64_t nq = unit * (1 + random_below(&m->r, 2)), nk = unit;
    coda_value x = maker_linear(m, maker_draw(m), nq + 2 * nk);
    struct shape s = maker_shape(m, x);
    if (!x.id || s.rank < 2 || s.rank + 1 > CODA_MAX_RANK) return CODA_NONE;
    coda_value q = headed(m, maker_slice(m, x, 0, nq), hd), k = headed(m, maker_slice(m, x, nq, nq + nk), hd);
    coda_rope_options rope = rope_options(m, hd);
    coda_value at = positions(m, x, &rope), v = maker_slice(m, x, nq + nk, nq + 2 * nk);
    bool turns = random_chance(&m->r, 60);
    if (turns && maker_shape(m, q).rank == s.rank) q = coda_rope(m->g, q, at, &rope);
    if (turns && maker_shape(m, k).rank == s.rank) k = coda_rope(m->g, k, at, &rope);
    maker_keep(m, q);
    maker_keep(m, k);
    return random_chance(&m->r, 50) ? v : coda_scale(m->g, v, 0.5f);
}

/* The rows of q as those of some sequences, whose keys are leaves. */
static void pack(struct maker *m, coda_value q, int64_t columns, coda_value *k, coda_value *v,
                 coda_attention_options *o, coda_value *lengths)
{
    int64_t batch = random_below(&m->r, 5), starts = batch + 1, keys[] = {batch, maker_size(m), columns};
    o->starts = maker_leaf(m, false, CODA_I32, 1, &starts);
    *lengths = random_chance(&m->r, 50) ? maker_leaf(m, false, CODA_I32, 1, &batch) : CODA_NONE;
    *k = maker_leaf(m, false, maker_shape(m, q).dtype, 3, keys);
    *v = random_chance(&m->r, 20) ? *k : maker_leaf(m, false, maker_shape(m, q).dtype, 3, keys);
}

/* A vector [batch, 1, columns] for each sample of x. */
static coda_value of_samples(struct maker *m, coda_value x)
{
    struct shape s = maker_shape(m, x);
    int64_t dim[] = {s.dim[0], 1, s.dim[2]};
    return maker_leaf(m, random_chance(&m->r, 70), s.dtype, 3, dim);
}

/* An adaptive norm before one or two projections: of what a product leaves, most of the time with a gate and
 * with the residual, by a gain of each sample, a shift, or both. */
coda_value maker_adaptive(struct maker *m)
{
    coda_value x = maker_draw(m), y = maker_linear(m, maker_draw(m), maker_columns(m, x));
    if (!y.id) return y;
    struct shape s = maker_shape(m, x), of = maker_shape(m, y);
    if (s.rank != 3 || of.rank != 3 || of.dim[0] != s.dim[0] || of.dim[1] != s.dim[1]) return CODA_NONE;
    if (random_chance(&m->r, 60)) y = coda_mul(m->g, y, of_samples(m, y));
    if (random_chance(&m->r, 80)) y = coda_add(m->g, x, y);
    coda_value h = maker_keep(m, y), gain = of_samples(m, y);
    if (random_chance(&m->r, 70)) gain = coda_add(m->g, gain, coda_constant(m->g, CODA_F32, 1));
    h = random_chance(&m->r, 30) ? coda_rms_norm(m->g, h, CODA_NONE, 1e-3f)
                                 : coda_layer_norm(m->g, h, CODA_NONE, CODA_NONE, 1e-3f);
    if (random_chance(&m->r, 85)) h = coda_mul(m->g, h, gain);
    if (random_chance(&m->r, 70)) h = coda_add(m->g, h, of_samples(m, y));
    if (random_chance(&m->r, 30)) maker_keep(m, maker_linear(m, h, maker_size(m)));
    return maker_linear(m, h, maker_size(m));
}

static double fade(const double *in, const double *p)
{
    return in[0] - p[0] * fmin(fabs(in[1] - in[2]), 16) * (in[3] + 1);
}
/* A map of scores: the graph's own, or the library's. */
static void draw_score(struct maker *m, coda_attention_options *o)
{
    coda_map_def def = {0, "fade", 4, 1, NULL, fade, {NULL}};
    def.source = "DEV static float apply(float s, float at, float key, float head, float by)\n"
                 "{ return fmaf(-by * (head + 1.0f), fminf(fabsf(at - key), 16.0f), s); }";
    bool own = random_chance(&m->r, 60);
    if (own && !graph_find_prim(m->g, "fade") && coda_define_map(m->g, &def) != CODA_OK) return;
    o->score = own ? "fade" : "softcap", o->score_params[0] = own ? 0.0625f : 2.0f;
}

/* norm -> fused q k v -> rope on q and k -> attention, with or without a batch. */
coda_value maker_attention(struct maker *m)
{
    static const int64_t size[] = {2, 4, 8, 10, 16};
    coda_attention_options o = CODA_ATTENTION_OPTIONS_INIT;
    int64_t group = 1 + random_below(&m->r, 3), kv = 1 + random_below(&m->r, 2);
    int64_t hd = size[random_below(&m->r, 5)], nq = kv * group * hd, nk = kv * hd;
    coda_value x = !m->opt.exact && random_chance(&m->r, 50) ? maker_norm(m, maker_draw(m)) : maker_draw(m);
    coda_value qkv = maker_linear(m, x, nq + 2 * nk);
    struct shape s = maker_shape(m, qkv);
    if (s.rank != 2 && s.rank != 3) return CODA_NONE;
    int64_t atv = random_chance(&m->r, 20) ? 0 : nq + nk, atq = atv ? 0 : nk; /* v first, now and then */
    coda_value q = maker_slice(m, qkv, atq, atq + nq), k = maker_slice(m, qkv, atq + nq, atq + nq + nk);
    coda_value v = maker_slice(m, qkv, atv, atv + nk), lengths = CODA_NONE;
    if (random_chance(&m->r, 70)) {
        coda_rope_options rope = rope_options(m, hd);
        coda_value at = positions(m, qkv, &rope);
        q = coda_rope(m->g, q, at, &rope);
        if (random_chance(&m->r, 15)) rope.base = 1000.0f;
        if (random_chance(&m->r, 10)) rope.inverse = !rope.inverse;
        k = coda_rope(m->g, k, at, &rope);
    }
    if (s.rank == 3 && random_chance(&m->r, 30)) lengths = maker_leaf(m, false, CODA_I32, 1, s.dim);
    if (s.rank == 2 && random_chance(&m->r, 30)) pack(m, q, nk, &k, &v, &o, &lengths);
    o.heads = kv * group, o.kv_heads = kv, o.causal = random_chance(&m->r, 60);
    o.window = random_chance(&m->r, 25) ? 1 + random_below(&m->r, 20) : 0;
    o.align = (coda_attention_align)random_below(&m->r, 4);
    if (o.starts.id && !o.align) o.align = CODA_ALIGN_LENGTH;
    o.scale = random_chance(&m->r, 20) ? 0.25f : 0.0f, o.softcap = random_chance(&m->r, 10) ? 3.0f : 0.0f;
    if (!o.causal && random_chance(&m->r, 20)) o.ahead = 1 + random_below(&m->r, 20);
    if (random_chance(&m->r, 10)) o.slopes = maker_leaf(m, true, CODA_F32, 1, &o.heads);
    if (random_chance(&m->r, 10)) o.sinks = maker_leaf(m, true, CODA_F32, 1, &o.heads);
    if (random_chance(&m->r, 15)) draw_score(m, &o);
    int64_t pairs[] = {o.heads, s.dim[s.rank - 2], maker_shape(m, k).dim[maker_shape(m, k).rank - 2]};
    if (random_chance(&m->r, 15)) o.bias = maker_leaf(m, true, s.dtype, 3, pairs);
    s.dim[s.rank - 1] = 2;
    if (random_chance(&m->r, 10)) o.ranges = maker_leaf(m, false, CODA_I32, s.rank, s.dim);
    coda_value sums;
    if (!random_chance(&m->r, 10)) return coda_attention(m->g, q, k, v, lengths, &o);
    coda_value y = coda_attention_lse(m->g, q, k, v, lengths, &o, &sums);
    maker_keep(m, sums);
    return random_chance(&m->r, 80) ? y : sums;
}
