/*
 * sd3.c -- two streams, of the picture and of the text, with weights of their own, which attend to both:
 * arXiv 2403.03206. SD3.5 normalises queries and keys, and some blocks attend to the picture once more.
 */
#include "picture_build.h"

static void first(struct drawing *d, coda_value times)
{
    coda_graph *g = d->b.g;
    const struct picture_config *c = d->c;
    int64_t wide = c->hidden, n = d->shape->samples, tokens = d->shape->text;
    coda_value pooled = coda_input(g, "pooled", CODA_F32, DIMS(d->shape->conditions, c->pooled_columns));
    coda_value text = coda_input(g, "text", CODA_F32, DIMS(n, tokens, c->text_columns));
    coda_value time =
        picture_embedder(d, times, "time_text_embed.timestep_embedder", TIME_COLUMNS, wide, coda_silu);
    coda_value of = picture_embedder(d, coda_cast(g, pooled, d->b.dtype), "time_text_embed.text_embedder",
                                     c->pooled_columns, wide, coda_silu);
    coda_value condition = picture_each(d, time, of);
    text =
        picture_linear(d, coda_cast(g, text, d->b.dtype), PART({"context_embedder", wide}), c->text_columns);
    coda_output(g, "context", text);
    for (int l = 0; l < c->layers; l++) {
        build_prefix(&d->b, "transformer_blocks.%d.", l);
        picture_modulate(d, condition, "norm1.linear", c->dual[l] ? 9 : 6);
        picture_modulate(d, condition, "norm1_context.linear", l == c->layers - 1 ? 2 : 6);
    }
    build_prefix(&d->b, "", 0);
    picture_modulate(d, condition, "norm_out.linear", 2);
}

static const char *const norms[] = {"attn.norm_q", "attn.norm_k"};
static const char *const text_norms[] = {"attn.norm_added_q", "attn.norm_added_k"};
static const char *const again_norms[] = {"attn2.norm_q", "attn2.norm_k"};

/* x attends to itself, apart from the text. */
static coda_value again(struct drawing *d, coda_value h)
{
    static const char *const names[] = {"attn2.to_q", "attn2.to_k", "attn2.to_v"};
    int64_t wide = d->c->hidden;
    struct picture_qkv p =
        picture_qkv(d, h, names, d->c->qk_norm ? again_norms : NULL, picture_patches(d->shape));
    return picture_linear(d, picture_attention(d, p.q, p.k, p.v, CODA_NONE), PART({"attn2.to_out.0", wide}),
                          wide);
}

static coda_value joined(struct drawing *d, coda_value x, coda_value y)
{
    return coda_concat(d->b.g, 1, (coda_value[]){x, y}, 2);
}

/* Both streams' attention, the picture's rows first. */
static coda_value attend(struct drawing *d, coda_value x, coda_value y)
{
    static const char *const names[] = {"attn.to_q", "attn.to_k", "attn.to_v"};
    static const char *const text_names[] = {"attn.add_q_proj", "attn.add_k_proj", "attn.add_v_proj"};
    bool normed = d->c->qk_norm;
    struct picture_qkv a = picture_qkv(d, x, names, normed ? norms : NULL, picture_patches(d->shape));
    struct picture_qkv b = picture_qkv(d, y, text_names, normed ? text_norms : NULL, d->shape->text);
    return picture_attention(d, joined(d, a.q, b.q), joined(d, a.k, b.k), joined(d, a.v, b.v), CODA_NONE);
}

static void block(struct drawing *d, coda_value *x, coda_value *y, bool dual, bool last)
{
    int64_t wide = d->c->hidden, n = picture_patches(d->shape);
    coda_value m[9], t[6], h, k; /* shift, scale, gate; of the last text block scale, shift */
    picture_take(d, m, dual ? 9 : 6);
    picture_take(d, t, last ? 2 : 6);
    h = picture_modulated(d, *x, m[0], m[1], 1e-6f);
    k = last ? picture_modulated(d, *y, t[1], t[0], 1e-6f) : picture_modulated(d, *y, t[0], t[1], 1e-6f);
    coda_value twice = dual ? picture_modulated(d, *x, m[6], m[7], 1e-6f) : CODA_NONE;
    coda_value a = attend(d, h, k);
    coda_value own = coda_slice(d->b.g, a, 1, 0, n, 1),
               text = coda_slice(d->b.g, a, 1, n, n + d->shape->text, 1);
    *x = picture_gated(d, *x, m[2], picture_linear(d, own, PART({"attn.to_out.0", wide}), wide));
    if (dual) *x = picture_gated(d, *x, m[8], again(d, twice));
    *x = picture_gated(d, *x, m[5], picture_mlp(d, picture_modulated(d, *x, m[3], m[4], 1e-6f), "ff"));
    if (last) return;
    *y = picture_gated(d, *y, t[2], picture_linear(d, text, PART({"attn.to_add_out", wide}), wide));
    *y =
        picture_gated(d, *y, t[5], picture_mlp(d, picture_modulated(d, *y, t[3], t[4], 1e-6f), "ff_context"));
}

static coda_value step(struct drawing *d, coda_value patches)
{
    coda_value x = picture_patches_in(d, patches), y = d->context, m[2];
    for (int l = 0; l < d->c->layers; l++) {
        build_prefix(&d->b, "transformer_blocks.%d.", l);
        block(d, &x, &y, d->c->dual[l], l == d->c->layers - 1);
    }
    picture_take(d, m, 2); /* scale, shift */
    return picture_patches_out(d, picture_modulated(d, x, m[1], m[0], 1e-6f), "proj_out");
}

const struct picture_graphs picture_sd3 = {first, step};
