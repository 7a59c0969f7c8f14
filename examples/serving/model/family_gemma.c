/*
 * family_gemma.c -- Gemma 1, 2 and 3: gains kept less 1, GeGLU, embeddings times sqrt(hidden); from 2 on
 * norms on both sides of each half and layers that slide; 2 has soft caps, 3 norms of queries and keys.
 * EmbeddingGemma is 3 in both directions.
 */
#include <math.h>
#include <string.h>

#include "build.h"

static coda_value attention(struct build *b, coda_value x, int layer)
{
    const struct config *c = b->c;
    int64_t q = (int64_t)c->heads * c->head_dim, k = (int64_t)c->kv_heads * c->head_dim;
    struct attention how = {.rope = true, .norms = !strcmp(c->family, "gemma3_text"), .unit = c->unit_gains};
    coda_value qkv =
        build_linear(b, x, PART({"self_attn.q_proj", q}, {"self_attn.k_proj", k}, {"self_attn.v_proj", k}),
                     c->hidden, c->qkv_bias);
    return build_linear(b, build_attention(b, qkv, layer, how), PART({"self_attn.o_proj", c->hidden}), q,
                        c->out_bias);
}

static coda_value mlp(struct build *b, coda_value x)
{
    const struct config *c = b->c;
    coda_value gate_up =
        build_linear(b, x, PART({"mlp.gate_proj", c->inner}, {"mlp.up_proj", c->inner}), c->hidden, false);
    return build_linear(b, coda_geglu(b->g, gate_up, CODA_STACKED), PART({"mlp.down_proj", c->hidden}),
                        c->inner, false);
}

/* The states behind the last layer. */
static coda_value states(struct build *b, coda_value ids)
{
    const struct config *c = b->c;
    coda_graph *g = b->g;
    bool first = !strcmp(c->family, "gemma");
    build_decoder(b);
    if (c->activation != ACTIVATION_GELU_TANH)
        return b->failed = true,
               fault_set(b->fault, "%s: the activation must be gelu's tanh form", c->family), CODA_NONE;
    coda_value x = build_embedding(b, "embed_tokens", c->vocabulary, ids);
    x = coda_scale(g, x, sqrtf((float)c->hidden));
    for (int l = 0; l < c->layers; l++) {
        build_prefix(b, "layers.%d.", l);
        coda_value a = attention(b, build_rms_norm(b, x, "input_layernorm"), l);
        x = coda_add(g, first ? a : build_rms_norm(b, a, "post_attention_layernorm"), x);
        coda_value m =
            mlp(b, build_rms_norm(b, x, first ? "post_attention_layernorm" : "pre_feedforward_layernorm"));
        x = coda_add(g, first ? m : build_rms_norm(b, m, "post_feedforward_layernorm"), x);
    }
    build_prefix(b, "", 0);
    return x;
}

coda_value family_gemma(struct build *b, coda_value ids)
{
    coda_value x = build_last(b, states(b, ids));
    return build_logits(b, build_rms_norm(b, x, "norm"), "embed_tokens");
}

coda_value family_gemma_encoder(struct build *b, coda_value ids)
{
    coda_value x = states(b, ids);
    return build_rms_norm(b, x, "norm");
}
