/*
 * graph.c -- the graph of chat_graph.h.
 */
#include <stdio.h>

#include "chat_graph.h"

enum {
    LAYERS = 2,
    HIDDEN = 64,
    HEADS = 4,
    KEY_HEADS = 2,
    HEAD = HIDDEN / HEADS,
    KEYS = KEY_HEADS * HEAD,
    INNER = 128
};

#define DIMS(...)                                                                                            \
    (int)(sizeof((int64_t[]){__VA_ARGS__}) / sizeof(int64_t)), (int64_t[]) { __VA_ARGS__ }

struct build {
    coda_graph *g;
    const struct runner_options *opt;
    coda_dtype dtype;
    coda_value positions, slots, lengths, table, starts;
};

static coda_value weight(const struct build *b, const char *name, int layer, int64_t n, int64_t k)
{
    char numbered[32];
    snprintf(numbered, sizeof numbered, "%.20s.%d", name, layer);
    return k ? coda_weight(b->g, numbered, b->dtype, DIMS(n, k))
             : coda_weight(b->g, numbered, b->dtype, DIMS(n));
}

/* A layer's keys or values in their pages, with those of this step. */
static coda_value pool(const struct build *b, const char *name, int layer, coda_value rows)
{
    char numbered[32];
    snprintf(numbered, sizeof numbered, "%.20s.%d", name, layer);
    int64_t slots = (int64_t)b->opt->pages * PAGE_TOKENS;
    return coda_append(b->g, coda_state(b->g, numbered, b->dtype, DIMS(slots, KEYS)), rows, b->slots, NULL);
}

static coda_value attention(const struct build *b, coda_value x, int layer)
{
    coda_graph *g = b->g;
    coda_rope_options rope = CODA_ROPE_OPTIONS_INIT;
    rope.head_dim = HEAD;
    rope.heads = HEADS + KEY_HEADS;
    coda_attention_options o = CODA_ATTENTION_OPTIONS_INIT;
    o.heads = HEADS;
    o.kv_heads = KEY_HEADS;
    o.causal = 1;
    o.align = CODA_ALIGN_LENGTH;
    o.page = PAGE_TOKENS;
    o.table = b->table;
    o.starts = b->starts;

    coda_value qkv = coda_matmul(g, x, weight(b, "qkv", layer, HIDDEN + 2 * KEYS, HIDDEN));
    qkv = coda_rope(g, qkv, b->positions, &rope);
    coda_value k = pool(b, "keys", layer, coda_slice(g, qkv, 1, HIDDEN, HIDDEN + KEYS, 1));
    coda_value v = pool(b, "values", layer, coda_slice(g, qkv, 1, HIDDEN + KEYS, HIDDEN + 2 * KEYS, 1));
    coda_value a = coda_attention(g, coda_slice(g, qkv, 1, 0, HIDDEN, 1), k, v, b->lengths, &o);
    return coda_matmul(g, a, weight(b, "out", layer, HIDDEN, HIDDEN));
}

static coda_value mlp(const struct build *b, coda_value x, int layer)
{
    coda_value gate_up = coda_matmul(b->g, x, weight(b, "gate_up", layer, 2 * INNER, HIDDEN));
    return coda_matmul(b->g, coda_swiglu(b->g, gate_up, CODA_STACKED),
                       weight(b, "down", layer, HIDDEN, INNER));
}

coda_graph *chat_graph(const struct runner_options *opt, coda_dtype dtype)
{
    coda_graph *g = coda_graph_new();
    if (!g) return NULL;
    struct build b = {.g = g, .opt = opt, .dtype = dtype};
    coda_dim rows = coda_symbol(g, "T", 1, opt->rows, 1);
    coda_dim sequences = coda_symbol(g, "B", 1, opt->sequences, 1);
    coda_value ids = coda_input(g, "ids", CODA_I32, DIMS(rows));
    b.positions = coda_input(g, "positions", CODA_I32, DIMS(rows));
    b.slots = coda_input(g, "slots", CODA_I32, DIMS(rows));
    b.starts = coda_input(g, "starts", CODA_I32, DIMS(coda_dim_add(g, sequences, 1)));
    b.lengths = coda_input(g, "lengths", CODA_I32, DIMS(sequences));
    b.table = coda_input(g, "table", CODA_I32, DIMS(sequences, opt->context / PAGE_TOKENS));
    coda_value last = coda_input(g, "last", CODA_I32, DIMS(sequences));

    coda_value x = coda_embedding(g, weight(&b, "tokens", 0, MODEL_VOCABULARY, HIDDEN), ids);
    for (int l = 0; l < LAYERS; l++) {
        x = coda_add(g, attention(&b, coda_rms_norm(g, x, weight(&b, "before", l, HIDDEN, 0), 1e-5f), l), x);
        x = coda_add(g, mlp(&b, coda_rms_norm(g, x, weight(&b, "between", l, HIDDEN, 0), 1e-5f), l), x);
    }
    x = coda_rms_norm(g, coda_embedding(g, x, last), weight(&b, "behind", 0, HIDDEN, 0), 1e-5f);
    x = coda_matmul(g, x, weight(&b, "head", 0, MODEL_LOGITS, HIDDEN));
    coda_output(g, "logits", coda_cast(g, x, CODA_F32));
    return g;
}
