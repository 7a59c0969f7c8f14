/*
 * wan.c -- videos of a text: blocks of one stream over the patches of all frames, which attend to each other
 * and to the text. Queries and keys have a norm of all heads at once, and turn by frame, row and column. Wan
 * Team, arXiv 2503.20314.
 */
#include <stdio.h>

#include "picture_build.h"

static coda_value normed(struct drawing *d, coda_value x, const char *name)
{
    return coda_rms_norm(d->b.g, x, build_gain(&d->b, name, d->c->hidden, false), (float)d->c->eps);
}

/* A block's keys and values of the text, [samples, tokens, hidden] each. */
static void text_keys(struct drawing *d, coda_value text, int layer)
{
    char keys[32], values[32];
    int64_t wide = d->c->hidden;
    snprintf(keys, sizeof keys, "keys.%d", layer);
    snprintf(values, sizeof values, "values.%d", layer);
    coda_value y = picture_linear(d, text, PART({"attn2.to_k", wide}, {"attn2.to_v", wide}), wide);
    coda_output(d->b.g, keys, normed(d, build_range(&d->b, y, 0, wide), "attn2.norm_k"));
    coda_output(d->b.g, values, build_range(&d->b, y, wide, wide));
}

static void first(struct drawing *d, coda_value times)
{
    coda_graph *g = d->b.g;
    int64_t wide = d->c->hidden;
    coda_value text =
        coda_input(g, "text", CODA_F32, DIMS(d->shape->samples, d->shape->text, d->c->text_columns));
    coda_value c =
        picture_embedder(d, times, "condition_embedder.time_embedder", TIME_COLUMNS, wide, coda_silu);
    coda_value six =
        picture_linear(d, coda_silu(g, c), PART({"condition_embedder.time_proj", 6 * wide}), wide);
    coda_value two[] = {c, c};
    text = picture_embedder(d, coda_cast(g, text, d->b.dtype), "condition_embedder.text_embedder",
                            d->c->text_columns, wide, coda_gelu_tanh);
    for (int l = 0; l < d->c->layers; l++) {
        build_prefix(&d->b, "blocks.%d.", l);
        picture_keep(d, coda_add(g, six, picture_table(d, 6)), 6 * wide);
        text_keys(d, text, l);
    }
    build_prefix(&d->b, "", 0);
    picture_keep(d, coda_add(g, coda_concat(g, -1, two, 2), picture_table(d, 2)), 2 * wide);
}

/* ---- A step ---- */

static coda_value attend(struct drawing *d, coda_value x)
{
    static const char *const names[] = {"attn1.to_q", "attn1.to_k", "attn1.to_v"};
    int64_t n = picture_patches(d->shape), wide = d->c->hidden;
    struct picture_qkv p = picture_qkv(d, x, names, NULL, n);
    coda_value q = picture_turned(d, normed(d, p.q, "attn1.norm_q"), 0, n),
               k = picture_turned(d, normed(d, p.k, "attn1.norm_k"), 0, n);
    coda_value a = picture_attention(d, q, k, p.v, CODA_NONE);
    return picture_linear(d, a, PART({"attn1.to_out.0", wide}), wide);
}

/* One of what first() has made of the text. */
static coda_value of_text(struct drawing *d, const char *what, int layer)
{
    char name[32];
    snprintf(name, sizeof name, "%s.%d", what, layer);
    return coda_input(d->b.g, name, d->b.dtype, DIMS(d->shape->samples, d->shape->text, d->c->hidden));
}

static coda_value cross(struct drawing *d, coda_value x, int layer)
{
    int64_t wide = d->c->hidden;
    coda_value y = x;
    if (d->c->cross_norm)
        y = coda_layer_norm(d->b.g, x, build_gain(&d->b, "norm2", wide, false),
                            build_weight(&d->b, PART({"norm2", wide}), ".bias", 0), (float)d->c->eps);
    coda_value q = normed(d, picture_linear(d, y, PART({"attn2.to_q", wide}), wide), "attn2.norm_q");
    coda_value a = picture_attention(d, q, of_text(d, "keys", layer), of_text(d, "values", layer), CODA_NONE);
    return coda_add(d->b.g, x, picture_linear(d, a, PART({"attn2.to_out.0", wide}), wide));
}

static coda_value block(struct drawing *d, coda_value x, int layer)
{
    float eps = (float)d->c->eps;
    coda_value m[6]; /* shift, scale, gate */
    picture_take(d, m, 6);
    x = picture_gated(d, x, m[2], attend(d, picture_modulated(d, x, m[0], m[1], eps)));
    x = cross(d, x, layer);
    return picture_gated(d, x, m[5], picture_mlp(d, picture_modulated(d, x, m[3], m[4], eps), "ffn"));
}

static coda_value step(struct drawing *d, coda_value patches)
{
    coda_value x = picture_filtered(d, patches, "patch_embedding"), m[2];
    for (int l = 0; l < d->c->layers; l++) {
        build_prefix(&d->b, "blocks.%d.", l);
        x = block(d, x, l);
    }
    picture_take(d, m, 2); /* shift, scale */
    return picture_patches_out(d, picture_modulated(d, x, m[0], m[1], (float)d->c->eps), "proj_out");
}

const struct picture_graphs picture_wan = {first, step};
