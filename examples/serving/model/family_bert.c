/*
 * family_bert.c -- BERT and MiniLM: learned positions, biases, LayerNorm behind each half of a block.
 */
#include "build.h"

/* Each sentence's tokens attend to all of its own; rows from its length on are padding. */
static coda_value attention(struct build *b, coda_value x)
{
    const struct config *c = b->c;
    int64_t wide = (int64_t)c->heads * c->head_dim; /* hidden, but of one of several ranks */
    coda_attention_options o = CODA_ATTENTION_OPTIONS_INIT;
    o.heads = c->heads;
    coda_value qkv = build_linear(
        b, x,
        PART({"attention.self.query", wide}, {"attention.self.key", wide}, {"attention.self.value", wide}),
        c->hidden, true);
    coda_value a = coda_attention(b->g, coda_slice(b->g, qkv, 2, 0, wide, 1),
                                  coda_slice(b->g, qkv, 2, wide, 2 * wide, 1),
                                  coda_slice(b->g, qkv, 2, 2 * wide, 3 * wide, 1), b->lengths, &o);
    return build_linear(b, a, PART({"attention.output.dense", c->hidden}), wide, true);
}

static coda_value mlp(struct build *b, coda_value x)
{
    const struct config *c = b->c;
    coda_value inner = build_linear(b, x, PART({"intermediate.dense", c->inner}), c->hidden, true);
    return build_linear(b, build_activation(b, inner), PART({"output.dense", c->hidden}), c->inner, true);
}

static coda_value embedded(struct build *b, coda_value ids)
{
    const struct config *c = b->c;
    coda_graph *g = b->g;
    coda_value tokens = build_embedding(b, "word_embeddings", c->vocabulary, ids);
    coda_value places = build_embedding(b, "position_embeddings", c->positions, b->positions);
    coda_value types = build_weight(b, PART({"token_type_embeddings", c->types}), ".weight", c->hidden);
    coda_value x = coda_add(g, tokens, places);
    x = coda_add(g, x, coda_slice(g, types, 0, 0, 1, 1)); /* one text: all tokens are of type 0 */
    return build_layer_norm(b, x, "LayerNorm");
}

coda_value family_bert(struct build *b, coda_value ids)
{
    build_root(b, "embeddings.word_embeddings.weight", (const char *const[]){"bert."}, 1);
    build_prefix(b, "embeddings.", 0);
    coda_value x = embedded(b, ids);
    for (int l = 0; l < b->c->layers; l++) {
        build_prefix(b, "encoder.layer.%d.", l);
        x = build_layer_norm(b, coda_add(b->g, attention(b, x), x), "attention.output.LayerNorm");
        x = build_layer_norm(b, coda_add(b->g, mlp(b, x), x), "output.LayerNorm");
    }
    return x;
}
