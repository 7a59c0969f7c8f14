/*
 * dit.c -- a transformer of pictures of a class: arXiv 2212.09748. Each block has a table of classes of its
 * own.
 */
#include "picture_build.h"

/* The time's embedding plus the class's, by the tables of a block. */
static coda_value condition(struct drawing *d, coda_value times, coda_value classes)
{
    int64_t wide = d->c->hidden;
    coda_value time =
        picture_embedder(d, times, "norm1.emb.timestep_embedder", TIME_COLUMNS, wide, coda_silu);
    coda_value table = build_weight(
        &d->b, PART({"norm1.emb.class_embedder.embedding_table", d->c->classes + 1}), ".weight", wide);
    return picture_each(d, time, coda_embedding(d->b.g, table, classes));
}

static void first(struct drawing *d, coda_value times)
{
    coda_value classes = coda_input(d->b.g, "classes", CODA_I32, DIMS(d->shape->conditions)), c0 = CODA_NONE;
    for (int l = 0; l < d->c->layers; l++) {
        build_prefix(&d->b, "transformer_blocks.%d.", l);
        coda_value c = condition(d, times, classes);
        picture_modulate(d, c, "norm1.linear", 6);
        if (l == 0) c0 = c;
    }
    build_prefix(&d->b, "", 0);
    picture_modulate(d, c0, "proj_out_1", 2);
}

static coda_value block(struct drawing *d, coda_value x)
{
    static const char *const names[] = {"attn1.to_q", "attn1.to_k", "attn1.to_v"};
    int64_t wide = d->c->hidden;
    coda_value m[6]; /* shift, scale, gate */
    picture_take(d, m, 6);
    struct picture_qkv p =
        picture_qkv(d, picture_modulated(d, x, m[0], m[1], 1e-6f), names, NULL, picture_patches(d->shape));
    coda_value a = picture_attention(d, p.q, p.k, p.v, CODA_NONE);
    x = picture_gated(d, x, m[2], picture_linear(d, a, PART({"attn1.to_out.0", wide}), wide));
    coda_value h = picture_modulated(d, x, m[3], m[4], (float)d->c->eps);
    return picture_gated(d, x, m[5], picture_mlp(d, h, "ff"));
}

static coda_value step(struct drawing *d, coda_value patches)
{
    coda_value x = picture_patches_in(d, patches), m[2];
    for (int l = 0; l < d->c->layers; l++) {
        build_prefix(&d->b, "transformer_blocks.%d.", l);
        x = block(d, x);
    }
    picture_take(d, m, 2);
    return picture_patches_out(d, picture_modulated(d, x, m[0], m[1], 1e-6f), "proj_out_2");
}

const struct picture_graphs picture_dit = {first, step};
