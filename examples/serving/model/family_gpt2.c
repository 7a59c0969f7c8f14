/*
 * family_gpt2.c -- GPT-2: learned positions, LayerNorm, biases; its matrices are stored [in, out],
 * but in GGUF.
 */
#include "cut.h"

static coda_value conv1d(struct build *b, coda_value x, const char *name, int64_t in, int64_t out)
{
    if (b->c->turned) return build_linear(b, x, PART({name, out}), in, true);
    coda_value y = coda_matmul_kn(b->g, x, build_turned(b, name, in, out));
    y = build_summed(b, y, build_cut(b, name));
    return coda_bias(b->g, y, build_weight(b, PART({name, out}), ".bias", 0));
}

coda_value family_gpt2(struct build *b, coda_value ids)
{
    const struct config *c = b->c;
    coda_graph *g = b->g;
    int64_t wide = (int64_t)c->heads * c->head_dim; /* hidden, but of one of several ranks */
    build_root(b, "wte.weight", (const char *const[]){"transformer."}, 1);
    coda_value tokens = build_embedding(b, "wte", c->vocabulary, ids);
    coda_value x = coda_add(g, tokens, build_embedding(b, "wpe", c->positions, b->positions));
    for (int l = 0; l < c->layers; l++) {
        build_prefix(b, "h.%d.", l);
        coda_value qkv = conv1d(b, build_layer_norm(b, x, "ln_1"), "attn.c_attn", c->hidden, 3 * wide);
        coda_value a = build_attention(b, qkv, l, (struct attention){0});
        x = coda_add(g, conv1d(b, a, "attn.c_proj", wide, c->hidden), x);
        coda_value inner = conv1d(b, build_layer_norm(b, x, "ln_2"), "mlp.c_fc", c->hidden, c->inner);
        x = coda_add(g, conv1d(b, build_activation(b, inner), "mlp.c_proj", c->inner, c->hidden), x);
    }
    build_prefix(b, "", 0);
    return build_logits(b, build_layer_norm(b, build_last(b, x), "ln_f"), "wte");
}
