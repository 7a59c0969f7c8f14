/*
 * family_hybrid.c -- layers of Mamba-2 among others, without experts: Nemotron-H, whose layers are one of
 * three kinds each; Granite 4, whose first halves are one of two; Falcon-H1, whose layers do both.
 */
#include "build.h"

static coda_value attention(struct build *b, coda_value x, int layer)
{
    const struct config *c = b->c;
    int64_t q = (int64_t)c->heads * c->head_dim, k = (int64_t)c->kv_heads * c->head_dim;
    struct attention how = {.rope = !c->no_rope};
    coda_value qkv =
        build_linear(b, x, PART({"q_proj", q}, {"k_proj", k}, {"v_proj", k}), c->hidden, c->qkv_bias);
    return build_linear(b, build_attention(b, qkv, layer, how), PART({"o_proj", c->hidden}), q, c->out_bias);
}

static coda_value scan(struct build *b, coda_value x, int layer)
{
    return build_texts(b, build_ssd(b, build_rows(b, x, b->c->hidden), layer), b->c->hidden);
}

static coda_value norm(struct build *b, coda_value x, const char *name)
{
    return coda_cast(b->g, build_rms_norm(b, x, name), b->dtype);
}

/* ---- Nemotron-H ---- */

static coda_value plain_mlp(struct build *b, coda_value x)
{
    const struct config *c = b->c;
    coda_value up = build_linear(b, x, PART({"up_proj", c->inner}), c->hidden, c->mlp_bias);
    return build_linear(b, build_activation(b, up), PART({"down_proj", c->hidden}), c->inner, c->mlp_bias);
}

coda_value family_nemotron(struct build *b, coda_value ids)
{
    const struct config *c = b->c;
    coda_dtype wide = c->wide_residual ? CODA_F32 : b->dtype;
    build_root(b, "embeddings.weight", (const char *const[]){"model.", "backbone."}, 2);
    coda_value x = coda_cast(b->g, build_embedding(b, "embeddings", c->vocabulary, ids), wide);
    for (int l = 0; l < c->layers; l++) {
        build_prefix(b, "layers.%d.", l);
        coda_value y = norm(b, x, "norm");
        build_prefix(b, "layers.%d.mixer.", l);
        if (c->carries[l]) y = scan(b, y, l);
        else y = c->keeps[l] ? attention(b, y, l) : plain_mlp(b, y);
        x = coda_add(b->g, x, coda_cast(b->g, y, wide));
    }
    build_prefix(b, "", 0);
    return build_logits(b, norm(b, build_last(b, x), "norm_f"), "embeddings");
}

/* ---- Granite 4 ---- */

static bool wants_silu(struct build *b)
{
    if (b->c->activation == ACTIVATION_SILU) return true;
    fault_set(b->fault, "%s: the activation must be silu", b->c->family);
    b->failed = true;
    return false;
}

static coda_value shared_mlp(struct build *b, coda_value x)
{
    const struct config *c = b->c;
    coda_value both = build_linear(b, x, PART({"input_linear", 2 * (int64_t)c->inner}), c->hidden, false);
    return build_linear(b, coda_swiglu(b->g, both, CODA_STACKED), PART({"output_linear", c->hidden}),
                        c->inner, false);
}

coda_value family_granite(struct build *b, coda_value ids)
{
    const struct config *c = b->c;
    build_decoder(b);
    if (!wants_silu(b)) return CODA_NONE;
    coda_value x = build_embedding(b, "embed_tokens", c->vocabulary, ids);
    x = build_times(b, x, c->times.embedding);
    for (int l = 0; l < c->layers; l++) {
        build_prefix(b, "layers.%d.", l);
        coda_value y = build_rms_norm(b, x, "input_layernorm");
        build_prefix(b, c->carries[l] ? "layers.%d.mamba." : "layers.%d.self_attn.", l);
        y = (c->carries[l] ? scan : attention)(b, y, l);
        x = coda_add(b->g, x, build_times(b, y, c->times.residual));
        build_prefix(b, "layers.%d.", l);
        y = build_rms_norm(b, x, "post_attention_layernorm");
        build_prefix(b, "layers.%d.shared_mlp.", l);
        x = coda_add(b->g, x, build_times(b, shared_mlp(b, y), c->times.residual));
    }
    build_prefix(b, "", 0);
    return build_logits(b, build_rms_norm(b, build_last(b, x), "norm"), "embed_tokens");
}

/* ---- Falcon-H1 ---- */

static coda_value scaled_mlp(struct build *b, coda_value x)
{
    const struct config *c = b->c;
    int64_t n = c->inner;
    coda_value both = build_linear(b, x, PART({"gate_proj", n}, {"up_proj", n}), c->hidden, c->mlp_bias),
               y = {0};
    coda_value gate = build_times(b, build_range(b, both, 0, n), c->times.gate);
    if (c->times.gate == 1) y = coda_swiglu(b->g, both, CODA_STACKED);
    else y = coda_mul(b->g, coda_silu(b->g, gate), build_range(b, both, n, n));
    y = build_linear(b, y, PART({"down_proj", c->hidden}), n, c->mlp_bias);
    return build_times(b, y, c->times.down);
}

coda_value family_falcon(struct build *b, coda_value ids)
{
    const struct config *c = b->c;
    const struct multipliers *t = &c->times;
    build_decoder(b);
    if (!wants_silu(b)) return CODA_NONE;
    coda_value x = build_times(b, build_embedding(b, "embed_tokens", c->vocabulary, ids), t->embedding);
    for (int l = 0; l < c->layers; l++) {
        build_prefix(b, "layers.%d.", l);
        coda_value n = build_rms_norm(b, x, "input_layernorm");
        build_prefix(b, "layers.%d.mamba.", l);
        coda_value y = build_times(b, scan(b, build_times(b, n, t->scan_in), l), t->scan_out);
        build_prefix(b, "layers.%d.self_attn.", l);
        coda_value a = build_times(b, attention(b, build_times(b, n, t->attention_in), l), t->attention_out);
        x = coda_add(b->g, x, coda_add(b->g, y, a));
        build_prefix(b, "layers.%d.", l);
        n = build_rms_norm(b, x, "pre_ff_layernorm");
        build_prefix(b, "layers.%d.feed_forward.", l);
        x = coda_add(b->g, x, scaled_mlp(b, n));
    }
    build_prefix(b, "", 0);
    return build_logits(b, build_rms_norm(b, build_last(b, x), "final_layernorm"), "embed_tokens");
}
