/*
 * family_vit.c -- ViT (arXiv 2010.11929) and the image encoder of SigLIP (arXiv 2303.15343): patches are
 * tokens, LayerNorm before each half of a block. ViT's vector is the state of a token more, SigLIP's what one
 * query of its own makes of all states.
 */
#include <stdio.h>

#include "build.h"

/* What the two call the parts of a block. */
struct names {
    const char *block, *before, *query, *key, *value, *out, *after, *up, *down;
};

static const struct names vit = {.block = "encoder.layer.%d.",
                                 .before = "layernorm_before",
                                 .query = "attention.attention.query",
                                 .key = "attention.attention.key",
                                 .value = "attention.attention.value",
                                 .out = "attention.output.dense",
                                 .after = "layernorm_after",
                                 .up = "intermediate.dense",
                                 .down = "output.dense"};
static const struct names siglip = {.block = "encoder.layers.%d.",
                                    .before = "layer_norm1",
                                    .query = "self_attn.q_proj",
                                    .key = "self_attn.k_proj",
                                    .value = "self_attn.v_proj",
                                    .out = "self_attn.out_proj",
                                    .after = "layer_norm2",
                                    .up = "mlp.fc1",
                                    .down = "mlp.fc2"};

static coda_value attended(struct build *b, coda_value q, coda_value k, coda_value v, int heads)
{
    coda_attention_options o = CODA_ATTENTION_OPTIONS_INIT;
    o.heads = heads;
    return coda_attention(b->g, q, k, v, CODA_NONE, &o);
}

static coda_value attention(struct build *b, coda_value x, const struct names *n)
{
    const struct config *c = b->c;
    int64_t wide = (int64_t)c->heads * c->head_dim; /* hidden, but of one of several ranks */
    coda_value qkv =
        build_linear(b, x, PART({n->query, wide}, {n->key, wide}, {n->value, wide}), c->hidden, c->qkv_bias);
    coda_value a = attended(b, build_range(b, qkv, 0, wide), build_range(b, qkv, wide, wide),
                            build_range(b, qkv, 2 * wide, wide), c->heads);
    return build_linear(b, a, PART({n->out, c->hidden}), wide, true);
}

static coda_value mlp(struct build *b, coda_value x, const char *up, const char *down)
{
    coda_value inner = build_linear(b, x, PART({up, b->c->inner}), b->c->hidden, true);
    return build_linear(b, build_activation(b, inner), PART({down, b->c->hidden}), b->c->inner, true);
}

static coda_value blocks(struct build *b, coda_value x, const struct names *n)
{
    for (int l = 0; l < b->c->layers; l++) {
        build_prefix(b, n->block, l);
        x = coda_add(b->g, attention(b, build_layer_norm(b, x, n->before), n), x);
        x = coda_add(b->g, mlp(b, build_layer_norm(b, x, n->after), n->up, n->down), x);
    }
    build_prefix(b, "", 0);
    return x;
}

/* Products of patches and filters, which is the convolution whose steps are as wide as its filters. */
static coda_value embedded(struct build *b, coda_value patches, const char *name)
{
    const struct config *c = b->c;
    return build_linear(b, patches, PART({name, c->hidden}), (int64_t)c->channels * c->patch * c->patch,
                        true);
}

static int64_t patches_of(const struct config *c)
{
    return (int64_t)(c->image / c->patch) * (c->image / c->patch);
}

/* ---- ViT ---- */

coda_value family_vit(struct build *b, coda_value patches)
{
    const struct config *c = b->c;
    coda_graph *g = b->g;
    int64_t n = patches_of(c);
    build_root(b, "embeddings.cls_token", (const char *const[]){"vit."}, 1);
    build_prefix(b, "embeddings.", 0);
    coda_value x = embedded(b, patches, "patch_embeddings.projection");
    coda_value token = build_weight(b, PART({"cls_token", 1}), "", c->hidden);
    coda_value places = build_weight(b, PART({"position_embeddings", n + 1}), "", c->hidden);
    token = coda_add(g, token, coda_slice(g, places, 0, 0, 1, 1));
    x = coda_add(g, x, coda_slice(g, places, 0, 1, n + 1, 1));
    x = coda_concat(g, 1, (coda_value[]){coda_embedding(g, token, b->zeros), x}, 2);
    x = coda_slice(g, blocks(b, x, &vit), 1, 0, 1, 1);
    return build_layer_norm(b, x, "layernorm");
}

/* ---- SigLIP ---- */

/* One query for all images, the probe, over the states of each; of several ranks each has all heads. */
static coda_value pooled(struct build *b, coda_value x)
{
    coda_graph *g = b->g;
    int64_t wide = b->c->hidden;
    coda_value w = build_weight(b, PART({"attention.in_proj_weight", 3 * wide}), "", wide);
    coda_value bias = build_weight(b, PART({"attention.in_proj_bias", 3 * wide}), "", 0);
    coda_value q =
        coda_matmul(g, build_weight(b, PART({"probe", 1}), "", wide), coda_slice(g, w, 0, 0, wide, 1));
    q = coda_embedding(g, coda_bias(g, q, coda_slice(g, bias, 0, 0, wide, 1)), b->zeros);
    coda_value kv = coda_matmul(g, x, coda_slice(g, w, 0, wide, 3 * wide, 1));
    kv = coda_bias(g, kv, coda_slice(g, bias, 0, wide, 3 * wide, 1));
    coda_value a = attended(b, q, build_range(b, kv, 0, wide), build_range(b, kv, wide, wide),
                            (int)(wide / b->c->head_dim));
    return build_linear(b, a, PART({"attention.out_proj", wide}), wide, true);
}

coda_value family_siglip(struct build *b, coda_value patches)
{
    coda_graph *g = b->g;
    build_root(b, "embeddings.patch_embedding.weight", (const char *const[]){"vision_model."}, 1);
    build_prefix(b, "embeddings.", 0);
    coda_value places =
        build_weight(b, PART({"position_embedding", patches_of(b->c)}), ".weight", b->c->hidden);
    coda_value x = coda_add(g, embedded(b, patches, "patch_embedding"), places);
    x = build_layer_norm(b, blocks(b, x, &siglip), "post_layernorm");
    build_prefix(b, "head.", 0);
    x = pooled(b, x);
    return coda_add(g, mlp(b, build_layer_norm(b, x, "layernorm"), "mlp.fc1", "mlp.fc2"), x);
}
