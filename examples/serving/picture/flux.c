/*
 * flux.c -- FLUX.1: blocks of two streams, then blocks of one, in which attention and the MLP stand side by
 * side. Queries and keys are normalised, and turn by row and column; the text, which comes first, sits at 0.
 */
#include "picture_build.h"

static coda_value condition(struct drawing *d, coda_value times)
{
    coda_graph *g = d->b.g;
    const struct picture_config *c = d->c;
    coda_value pooled = coda_input(g, "pooled", CODA_F32, DIMS(d->shape->conditions, c->pooled_columns));
    coda_value y =
        picture_embedder(d, times, "time_text_embed.timestep_embedder", TIME_COLUMNS, c->hidden, coda_silu);
    if (c->guidance) {
        coda_value strength =
            coda_cast(g, coda_input(g, "strength", CODA_F32, DIMS(1, TIME_COLUMNS)), d->b.dtype);
        y = coda_add(g, y,
                     picture_embedder(d, strength, "time_text_embed.guidance_embedder", TIME_COLUMNS,
                                      c->hidden, coda_silu));
    }
    return picture_each(d, y,
                        picture_embedder(d, coda_cast(g, pooled, d->b.dtype), "time_text_embed.text_embedder",
                                         c->pooled_columns, c->hidden, coda_silu));
}

static void first(struct drawing *d, coda_value times)
{
    coda_graph *g = d->b.g;
    const struct picture_config *c = d->c;
    coda_value text =
        coda_input(g, "text", CODA_F32, DIMS(d->shape->samples, d->shape->text, c->text_columns));
    coda_value of = condition(d, times);
    text = picture_linear(d, coda_cast(g, text, d->b.dtype), PART({"context_embedder", c->hidden}),
                          c->text_columns);
    coda_output(g, "context", text);
    for (int l = 0; l < c->layers; l++) {
        build_prefix(&d->b, "transformer_blocks.%d.", l);
        picture_modulate(d, of, "norm1.linear", 6);
        picture_modulate(d, of, "norm1_context.linear", 6);
    }
    for (int l = 0; l < c->single_layers; l++) {
        build_prefix(&d->b, "single_transformer_blocks.%d.", l);
        picture_modulate(d, of, "norm.linear", 3);
    }
    build_prefix(&d->b, "", 0);
    picture_modulate(d, of, "norm_out.linear", 2);
}

/* ---- A step ---- */

static const char *const names[] = {"attn.to_q", "attn.to_k", "attn.to_v"};
static const char *const norms[] = {"attn.norm_q", "attn.norm_k"};

static coda_value joined(struct drawing *d, coda_value y, coda_value x)
{
    return coda_concat(d->b.g, 1, (coda_value[]){y, x}, 2);
}

static coda_value attend(struct drawing *d, coda_value x, coda_value y)
{
    static const char *const text_names[] = {"attn.add_q_proj", "attn.add_k_proj", "attn.add_v_proj"};
    static const char *const text_norms[] = {"attn.norm_added_q", "attn.norm_added_k"};
    int64_t n = picture_patches(d->shape), tokens = d->shape->text;
    struct picture_qkv a = picture_qkv(d, x, names, norms, n),
                       b = picture_qkv(d, y, text_names, text_norms, tokens);
    a.q = picture_turned(d, a.q, tokens, n), a.k = picture_turned(d, a.k, tokens, n);
    /* The text's angles are 0. Turned as well, its products are one launch with the picture's. */
    b.q = picture_turned(d, b.q, 0, tokens), b.k = picture_turned(d, b.k, 0, tokens);
    return picture_attention(d, joined(d, b.q, a.q), joined(d, b.k, a.k), joined(d, b.v, a.v), CODA_NONE);
}

static void block(struct drawing *d, coda_value *x, coda_value *y)
{
    int64_t wide = d->c->hidden, tokens = d->shape->text, n = picture_patches(d->shape);
    coda_value m[6], t[6]; /* shift, scale, gate */
    picture_take(d, m, 6);
    picture_take(d, t, 6);
    coda_value a =
        attend(d, picture_modulated(d, *x, m[0], m[1], 1e-6f), picture_modulated(d, *y, t[0], t[1], 1e-6f));
    coda_value text = coda_slice(d->b.g, a, 1, 0, tokens, 1),
               own = coda_slice(d->b.g, a, 1, tokens, tokens + n, 1);
    *x = picture_gated(d, *x, m[2], picture_linear(d, own, PART({"attn.to_out.0", wide}), wide));
    *x = picture_gated(d, *x, m[5], picture_mlp(d, picture_modulated(d, *x, m[3], m[4], 1e-6f), "ff"));
    *y = picture_gated(d, *y, t[2], picture_linear(d, text, PART({"attn.to_add_out", wide}), wide));
    *y =
        picture_gated(d, *y, t[5], picture_mlp(d, picture_modulated(d, *y, t[3], t[4], 1e-6f), "ff_context"));
}

static coda_value single(struct drawing *d, coda_value x)
{
    int64_t wide = d->c->hidden, all = d->shape->text + picture_patches(d->shape);
    coda_value m[3]; /* shift, scale, gate */
    picture_take(d, m, 3);
    coda_value h = picture_modulated(d, x, m[0], m[1], 1e-6f);
    coda_value y = picture_linear(
        d, h, PART({names[0], wide}, {names[1], wide}, {names[2], wide}, {"proj_mlp", 4 * wide}), wide);
    coda_value q = picture_head_norm(d, build_range(&d->b, y, 0, wide), norms[0], all);
    coda_value k = picture_head_norm(d, build_range(&d->b, y, wide, wide), norms[1], all);
    coda_value a = picture_attention(d, picture_turned(d, q, 0, all), picture_turned(d, k, 0, all),
                                     build_range(&d->b, y, 2 * wide, wide), CODA_NONE);
    coda_value both[] = {a, picture_activation(d, build_range(&d->b, y, 3 * wide, 4 * wide))};
    coda_value out = picture_linear(d, coda_concat(d->b.g, -1, both, 2), PART({"proj_out", wide}), 5 * wide);
    return picture_gated(d, x, m[2], out);
}

static coda_value step(struct drawing *d, coda_value patches)
{
    int64_t wide = d->c->hidden, tokens = d->shape->text, n = picture_patches(d->shape);
    build_prefix(&d->b, "", 0);
    coda_value x = picture_linear(d, patches, PART({"x_embedder", wide}), picture_patch_columns(d->c)), m[2];
    coda_value y = d->context;
    for (int l = 0; l < d->c->layers; l++) {
        build_prefix(&d->b, "transformer_blocks.%d.", l);
        block(d, &x, &y);
    }
    if (d->c->single_layers) {
        coda_value all = joined(d, y, x);
        for (int l = 0; l < d->c->single_layers; l++) {
            build_prefix(&d->b, "single_transformer_blocks.%d.", l);
            all = single(d, all);
        }
        x = coda_slice(d->b.g, all, 1, tokens, tokens + n, 1);
    }
    picture_take(d, m, 2); /* scale, shift */
    build_prefix(&d->b, "", 0);
    return picture_linear(d, picture_modulated(d, x, m[1], m[0], 1e-6f),
                          PART({"proj_out", picture_patch_columns(d->c)}), wide);
}

const struct picture_graphs picture_flux = {first, step};
