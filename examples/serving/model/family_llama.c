/*
 * family_llama.c -- LLaMA 2 and 3, Mistral, Qwen 2 and 3, Phi-3: pre-norm RMSNorm, RoPE, grouped heads,
 * SwiGLU.
 */
#include <string.h>

#include "build.h"

static coda_value attention(struct build *b, coda_value x, int layer)
{
    const struct config *c = b->c;
    int64_t q = (int64_t)c->heads * c->head_dim, k = (int64_t)c->kv_heads * c->head_dim;
    struct attention how = {.rope = true, .norms = !strcmp(c->family, "qwen3")};
    coda_value qkv = {0};
    if (!strcmp(c->family, "phi3"))
        qkv = build_linear(b, x, PART({"self_attn.qkv_proj", q + 2 * k}), c->hidden, false);
    else
        qkv = build_linear(b, x,
                           PART({"self_attn.q_proj", q}, {"self_attn.k_proj", k}, {"self_attn.v_proj", k}),
                           c->hidden, c->qkv_bias);
    return build_linear(b, build_attention(b, qkv, layer, how), PART({"self_attn.o_proj", c->hidden}), q,
                        c->out_bias);
}

static coda_value mlp(struct build *b, coda_value x)
{
    const struct config *c = b->c;
    if (strcmp(c->family, "phi3")) return build_swiglu(b, x);
    coda_value both = build_linear(b, x, PART({"mlp.gate_up_proj", 2 * (int64_t)c->inner}), c->hidden, false);
    return build_linear(b, coda_swiglu(b->g, both, CODA_STACKED), PART({"mlp.down_proj", c->hidden}),
                        c->inner, false);
}

coda_value family_llama(struct build *b, coda_value ids)
{
    const struct config *c = b->c;
    coda_graph *g = b->g;
    build_decoder(b);
    if (c->activation != ACTIVATION_SILU)
        return b->failed = true, fault_set(b->fault, "%s: the activation must be silu", c->family), CODA_NONE;
    coda_value x = build_embedding(b, "embed_tokens", c->vocabulary, ids);
    for (int l = 0; l < c->layers; l++) {
        build_prefix(b, "layers.%d.", l);
        x = coda_add(g, attention(b, build_rms_norm(b, x, "input_layernorm"), l), x);
        x = coda_add(g, mlp(b, build_rms_norm(b, x, "post_attention_layernorm")), x);
    }
    build_prefix(b, "", 0);
    return build_logits(b, build_rms_norm(b, build_last(b, x), "norm"), "embed_tokens");
}
