/*
 * pixart.c -- pictures of a text by cross-attention, and one set of modulations for all blocks, to which each
 * adds a table: arXiv 2310.00426.
 */
#include <stdio.h>

#include "picture_build.h"

/* Height, width and their ratio, a third of the columns each, for all steps. */
static coda_value sides(struct drawing *d, coda_value c)
{
    coda_graph *g = d->b.g;
    int64_t part = d->c->hidden / 3;
    coda_value rows = coda_cast(g, coda_input(g, "sides", CODA_F32, DIMS(3, TIME_COLUMNS)), d->b.dtype);
    coda_value two = picture_embedder(d, coda_slice(g, rows, 0, 0, 2, 1),
                                      "adaln_single.emb.resolution_embedder", TIME_COLUMNS, part, coda_silu);
    coda_value one =
        picture_embedder(d, coda_slice(g, rows, 0, 2, 3, 1), "adaln_single.emb.aspect_ratio_embedder",
                         TIME_COLUMNS, part, coda_silu);
    coda_value all[] = {coda_reshape(g, two, DIMS(1, 2 * part)), one};
    return coda_add(g, c, coda_concat(g, -1, all, 2));
}

/* Each block's keys and values of the text, [samples, tokens, 2 hidden]. */
static void keys(struct drawing *d, coda_value text, int layer)
{
    char name[32];
    int64_t wide = d->c->hidden, from = d->c->projects ? wide : d->c->text_columns;
    snprintf(name, sizeof name, "keys.%d", layer);
    coda_value y =
        build_linear(&d->b, text, PART({"attn2.to_k", wide}, {"attn2.to_v", wide}), from, d->c->qkv_bias);
    coda_output(d->b.g, name, y);
}

static void first(struct drawing *d, coda_value times)
{
    coda_graph *g = d->b.g;
    int64_t wide = d->c->hidden, n = d->shape->samples, tokens = d->shape->text;
    coda_value text =
        coda_cast(g, coda_input(g, "text", CODA_F32, DIMS(n, tokens, d->c->text_columns)), d->b.dtype);
    coda_value c =
        picture_embedder(d, times, "adaln_single.emb.timestep_embedder", TIME_COLUMNS, wide, coda_silu);
    if (d->c->sizes) c = sides(d, c);
    coda_value six = picture_linear(d, coda_silu(g, c), PART({"adaln_single.linear", 6 * wide}), wide);
    coda_value two[] = {c, c};
    if (d->c->projects)
        text = picture_embedder(d, text, "caption_projection", d->c->text_columns, wide, coda_gelu_tanh);
    if (d->b.from) checkpoint_use(d->b.from, "caption_projection.y_embedding"); /* of training */
    for (int l = 0; l < d->c->layers; l++) {
        build_prefix(&d->b, "transformer_blocks.%d.", l);
        picture_keep(d, coda_add(g, six, picture_table(d, 6)), 6 * wide);
        keys(d, text, l);
    }
    build_prefix(&d->b, "", 0);
    picture_keep(d, coda_add(g, coda_concat(g, -1, two, 2), picture_table(d, 2)), 2 * wide);
}

static coda_value cross(struct drawing *d, coda_value x, int layer)
{
    char name[32];
    int64_t wide = d->c->hidden;
    snprintf(name, sizeof name, "keys.%d", layer);
    coda_value y = coda_input(d->b.g, name, d->b.dtype, DIMS(d->shape->samples, d->shape->text, 2 * wide));
    coda_value q = build_linear(&d->b, x, PART({"attn2.to_q", wide}), wide, d->c->qkv_bias);
    coda_value a = picture_attention(d, q, build_range(&d->b, y, 0, wide), build_range(&d->b, y, wide, wide),
                                     d->lengths);
    return coda_add(d->b.g, x, picture_linear(d, a, PART({"attn2.to_out.0", wide}), wide));
}

static coda_value block(struct drawing *d, coda_value x, int layer)
{
    static const char *const names[] = {"attn1.to_q", "attn1.to_k", "attn1.to_v"};
    int64_t wide = d->c->hidden;
    float eps = (float)d->c->eps;
    coda_value m[6]; /* shift, scale, gate */
    picture_take(d, m, 6);
    struct picture_qkv p =
        picture_qkv(d, picture_modulated(d, x, m[0], m[1], eps), names, NULL, picture_patches(d->shape));
    coda_value a = picture_attention(d, p.q, p.k, p.v, CODA_NONE);
    x = picture_gated(d, x, m[2], picture_linear(d, a, PART({"attn1.to_out.0", wide}), wide));
    x = cross(d, x, layer);
    return picture_gated(d, x, m[5], picture_mlp(d, picture_modulated(d, x, m[3], m[4], eps), "ff"));
}

static coda_value step(struct drawing *d, coda_value patches)
{
    coda_value x = picture_patches_in(d, patches), m[2];
    for (int l = 0; l < d->c->layers; l++) {
        build_prefix(&d->b, "transformer_blocks.%d.", l);
        x = block(d, x, l);
    }
    picture_take(d, m, 2);
    return picture_patches_out(d, picture_modulated(d, x, m[0], m[1], 1e-6f), "proj_out");
}

const struct picture_graphs picture_pixart = {first, step};
