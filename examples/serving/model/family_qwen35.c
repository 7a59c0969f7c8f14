/*
 * family_qwen35.c -- Qwen 3.5 without experts: of each few layers one attends, with a gate behind it, and the
 * others carry a state by the gated delta rule. Gains are kept less 1, but those of the rule's norm.
 */
#include "build.h"

/* q's rows are [q | gate] of each head. */
static coda_value attention(struct build *b, coda_value x, int layer)
{
    const struct config *c = b->c;
    int64_t head = c->head_dim, q = c->heads * head, k = c->kv_heads * head;
    struct attention how = {.rope = true, .norms = true, .unit = true};
    coda_value all = build_linear(
        b, x, PART({"self_attn.q_proj", 2 * q}, {"self_attn.k_proj", k}, {"self_attn.v_proj", k}), c->hidden,
        c->qkv_bias);
    coda_value both = build_apart(b, build_range(b, all, 0, 2 * q), c->heads, 2 * head);
    coda_value y = build_attend(b, build_together(b, build_range(b, both, 0, head), q),
                                build_range(b, all, 2 * q, k), build_range(b, all, 2 * q + k, k), layer, how);
    coda_value gate = coda_sigmoid(b->g, build_range(b, both, head, head));
    y = build_together(b, coda_mul(b->g, build_apart(b, y, c->heads, head), gate), q);
    return build_linear(b, y, PART({"self_attn.o_proj", c->hidden}), q, c->out_bias);
}

/* Norm first, then the gate. */
static coda_value gated_norm(struct build *b, coda_value y, coda_value z)
{
    const struct recurrent *r = &b->c->recurrent;
    int64_t head = r->inner / r->heads;
    coda_value gain = build_gain(b, "linear_attn.norm", head, false);
    y = coda_rms_norm(b->g, coda_reshape(b->g, y, DIMS(b->rows, r->heads, head)), gain, b->c->eps);
    y = coda_mul(b->g, y, coda_silu(b->g, coda_reshape(b->g, z, DIMS(b->rows, r->heads, head))));
    return coda_reshape(b->g, y, DIMS(b->rows, r->inner));
}

static coda_value delta(struct build *b, coda_value x, int layer)
{
    const struct config *c = b->c;
    const struct recurrent *r = &c->recurrent;
    coda_graph *g = b->g;
    int64_t v = r->inner, k = (int64_t)r->groups * r->states, mixed = 2 * k + v, heads = r->heads;
    coda_value all = build_linear(b, x,
                                  PART({"linear_attn.in_proj_qkv", mixed}, {"linear_attn.in_proj_z", v},
                                       {"linear_attn.in_proj_b", heads}, {"linear_attn.in_proj_a", heads}),
                                  c->hidden, false);
    coda_value u = build_convolution(b, build_columns(b, all, 0, mixed), "linear_attn.conv1d", layer, mixed);
    coda_value beta = coda_sigmoid(g, coda_cast(g, build_columns(b, all, mixed + v, heads), CODA_F32));
    coda_value step = coda_cast(g, build_columns(b, all, mixed + v + heads, heads), CODA_F32);
    step = coda_softplus(g, coda_add(g, step, build_exact(b, "linear_attn.dt_bias", "", heads, 0, false)));
    coda_value decay = coda_mul(g, step, build_exact(b, "linear_attn.A_log", "", heads, 0, true));
    coda_value y = build_delta(b, build_columns(b, u, 0, k), build_columns(b, u, k, k),
                               build_columns(b, u, 2 * k, v), decay, beta, layer);
    y = gated_norm(b, y, build_columns(b, all, mixed, v));
    return build_texts(b, build_linear(b, y, PART({"linear_attn.out_proj", c->hidden}), v, false), c->hidden);
}

coda_value family_qwen35(struct build *b, coda_value ids)
{
    const struct config *c = b->c;
    coda_graph *g = b->g;
    build_decoder(b);
    if (c->activation != ACTIVATION_SILU)
        return fault_set(b->fault, "%s: the activation must be silu", c->family), build_fail(b);
    coda_value x = build_embedding(b, "embed_tokens", c->vocabulary, ids);
    for (int l = 0; l < c->layers; l++) {
        build_prefix(b, "layers.%d.", l);
        coda_value rows = c->keeps[l] ? x : build_rows(b, x, c->hidden);
        rows = build_rms_norm(b, rows, "input_layernorm");
        x = coda_add(g, (c->keeps[l] ? attention : delta)(b, rows, l), x);
        x = coda_add(g, build_swiglu(b, build_rms_norm(b, x, "post_attention_layernorm")), x);
    }
    build_prefix(b, "", 0);
    return build_logits(b, build_rms_norm(b, build_last(b, x), "norm"), "embed_tokens");
}
