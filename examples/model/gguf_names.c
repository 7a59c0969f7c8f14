/*
 * gguf_names.c -- GGUF's names of sizes and tensors as transformers has them.
 *
 * Values differ, too: LLaMA's rows of q and k are permuted so that RoPE turns neighbours, Gemma's gains have
 * their 1, GPT-2's matrices are turned, and LLaMA 3.1's frequencies are divided by the tensor rope_freqs.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "gguf.h"

struct pair {
    const char *gguf, *ours;
};

/* Behind the architecture and a dot. */
static const struct pair sizes[] = {{"block_count", "num_hidden_layers"},
                                    {"context_length", "max_position_embeddings"},
                                    {"embedding_length", "hidden_size"},
                                    {"feed_forward_length", "intermediate_size"},
                                    {"attention.head_count", "num_attention_heads"},
                                    {"attention.head_count_kv", "num_key_value_heads"},
                                    {"attention.key_length", "head_dim"},
                                    {"attention.layer_norm_rms_epsilon", "rms_norm_eps"},
                                    {"attention.layer_norm_epsilon", "layer_norm_eps"},
                                    {"attention.sliding_window", "sliding_window"},
                                    {"attention.sliding_window_pattern", "sliding_window_pattern"},
                                    {"rope.freq_base", "rope_theta"},
                                    {"attn_logit_softcapping", "attn_logit_softcapping"},
                                    {"final_logit_softcapping", "final_logit_softcapping"},
                                    {"pooling_type", "pooling_type"}};

/* ---- Names of tensors ---- */

static const struct pair outside[] = {
    {"token_embd", "model.embed_tokens"},  {"output_norm", "model.norm"},         {"output", "lm_head"},
    {"dense_2", "modules.dense_2.linear"}, {"dense_3", "modules.dense_3.linear"}, {NULL, NULL}};

static const struct pair inside[] = {{"attn_norm", "input_layernorm"},
                                     {"attn_q", "self_attn.q_proj"},
                                     {"attn_k", "self_attn.k_proj"},
                                     {"attn_v", "self_attn.v_proj"},
                                     {"attn_qkv", "self_attn.qkv_proj"},
                                     {"attn_output", "self_attn.o_proj"},
                                     {"attn_q_norm", "self_attn.q_norm"},
                                     {"attn_k_norm", "self_attn.k_norm"},
                                     {"ffn_gate", "mlp.gate_proj"},
                                     {"ffn_up", "mlp.up_proj"},
                                     {"ffn_down", "mlp.down_proj"},
                                     {"ffn_norm", "post_attention_layernorm"},
                                     {"post_attention_norm", "post_attention_layernorm"},
                                     {"post_ffw_norm", "post_feedforward_layernorm"},
                                     {NULL, NULL}};

static const struct pair bert_outside[] = {{"token_embd", "embeddings.word_embeddings"},
                                           {"token_types", "embeddings.token_type_embeddings"},
                                           {"position_embd", "embeddings.position_embeddings"},
                                           {"token_embd_norm", "embeddings.LayerNorm"},
                                           {NULL, NULL}};

static const struct pair bert_inside[] = {{"attn_q", "attention.self.query"},
                                          {"attn_k", "attention.self.key"},
                                          {"attn_v", "attention.self.value"},
                                          {"attn_output", "attention.output.dense"},
                                          {"attn_output_norm", "attention.output.LayerNorm"},
                                          {"ffn_up", "intermediate.dense"},
                                          {"ffn_down", "output.dense"},
                                          {"layer_output_norm", "output.LayerNorm"},
                                          {NULL, NULL}};

static const struct pair gpt2_outside[] = {{"token_embd", "wte"},
                                           {"position_embd", "wpe"},
                                           {"output_norm", "ln_f"},
                                           {"output", "lm_head"},
                                           {NULL, NULL}};

static const struct pair gpt2_inside[] = {
    {"attn_norm", "ln_1"}, {"attn_qkv", "attn.c_attn"}, {"attn_output", "attn.c_proj"},
    {"ffn_norm", "ln_2"},  {"ffn_up", "mlp.c_fc"},      {"ffn_down", "mlp.c_proj"},
    {NULL, NULL}};

/* Where families differ in what they call a part: these come first. */
static const struct pair fused[] = {{"ffn_up", "mlp.gate_up_proj"}, {NULL, NULL}};
static const struct pair both_sides[] = {{"ffn_norm", "pre_feedforward_layernorm"}, {NULL, NULL}};
static const struct pair none[] = {{NULL, NULL}};

#define LLAMA_NAMES .layers = "model.layers", .outside = outside, .inside = inside

static const struct architecture {
    const char *gguf, *ours;
    const char *layers; /* in front of a layer's number */
    const struct pair *outside, *inside, *first;
} architectures[] = {
    {"llama", "llama", LLAMA_NAMES, .first = none},
    {"qwen2", "qwen2", LLAMA_NAMES, .first = none},
    {"qwen3", "qwen3", LLAMA_NAMES, .first = none},
    {"phi3", "phi3", LLAMA_NAMES, .first = fused},
    {"gemma", "gemma", LLAMA_NAMES, .first = none},
    {"gemma2", "gemma2", LLAMA_NAMES, .first = both_sides},
    {"gemma3", "gemma3_text", LLAMA_NAMES, .first = both_sides},
    {"gemma-embedding", "gemma3_text", LLAMA_NAMES, .first = both_sides},
    {"bert", "bert", .layers = "encoder.layer", bert_outside, bert_inside, none},
    {"gpt2", "gpt2", .layers = "h", gpt2_outside, gpt2_inside, none},
};

static const struct architecture *architecture_of(const char *name)
{
    for (size_t i = 0; i < sizeof architectures / sizeof *architectures; i++)
        if (!strcmp(architectures[i].gguf, name)) return &architectures[i];
    return NULL;
}

static const char *find(const struct pair *all, const char *name, size_t length)
{
    for (; all->gguf; all++)
        if (strlen(all->gguf) == length && !memcmp(all->gguf, name, length)) return all->ours;
    return NULL;
}

static const char *part(const struct architecture *a, const char *name, size_t length)
{
    const char *ours = find(a->first, name, length);
    return ours ? ours : find(a->inside, name, length);
}

void gguf_name(const char *architecture, const char *name, char *to, size_t size)
{
    const struct architecture *a = architecture_of(architecture);
    const char *dot = strrchr(name, '.'), *ours = NULL;
    char *rest;
    if (a && dot && !strncmp(name, "blk.", 4) && name[4] >= '0' && name[4] <= '9') {
        unsigned long layer = strtoul(name + 4, &rest, 10);
        if (*rest == '.' && rest < dot) ours = part(a, rest + 1, (size_t)(dot - rest - 1));
        if (ours) snprintf(to, size, "%s.%lu.%s%s", a->layers, layer, ours, dot);
    } else if (a && dot) {
        ours = find(a->outside, name, (size_t)(dot - name));
        if (ours) snprintf(to, size, "%s%s", ours, dot);
    }
    if (!ours) snprintf(to, size, "%s", name);
}

/* ---- Sizes ---- */

static json_t *size_of(const json_t *meta, const char *architecture, const char *name)
{
    char full[128];
    snprintf(full, sizeof full, "%s.%s", architecture, name);
    return json_object_get(meta, full);
}

static void set(json_t *config, const char *name, json_t *value) { json_object_set_new(config, name, value); }

static json_int_t whole(const json_t *config, const char *name)
{
    return json_integer_value(json_object_get(config, name));
}

/* Rows of a table, by GGUF's name of it. */
static json_int_t rows_of(const struct checkpoint *c, const char *architecture, const char *name)
{
    char ours[128];
    gguf_name(architecture, name, ours, sizeof ours);
    const struct stored_tensor *t = checkpoint_find(c, ours);
    return t && t->rank == 2 ? (json_int_t)t->dims[0] : 0;
}

/* Gemma's larger models divide scores by the root of another number, which files do not tell. */
static void set_gemma(json_t *config, const char *architecture)
{
    json_int_t layers = whole(config, "num_hidden_layers"), heads = whole(config, "num_attention_heads");
    bool large = (!strcmp(architecture, "gemma2") && layers == 46) ||
                 (!strcmp(architecture, "gemma3") && layers == 62);
    if (large && heads > 0)
        set(config, "query_pre_attn_scalar", json_integer(whole(config, "hidden_size") / heads));
    set(config, "hidden_activation", json_string("gelu_pytorch_tanh"));
    set(config, "unit_gains", json_false());
    set(config, "use_bidirectional_attention", json_boolean(!strcmp(architecture, "gemma-embedding")));
}

static void set_bert(json_t *config, const struct checkpoint *c)
{
    set(config, "hidden_activation", json_string("gelu"));
    set(config, "type_vocab_size", json_integer(rows_of(c, "bert", "token_types.weight")));
}

/* Its matrices are turned: [out, in], as others have them. */
static void set_gpt2(json_t *config)
{
    set(config, "hidden_activation", json_string("gelu_new"));
    set(config, "turned", json_true());
}

/* The factors that frequencies are divided by, as a list. */
static json_t *rope_factors(const struct stored_tensor *t)
{
    json_t *list = json_array();
    for (int64_t i = 0; i < t->dims[0]; i++) {
        float x;
        memcpy(&x, t->data + 4 * i, sizeof x);
        json_array_append_new(list, json_real((double)x));
    }
    return list;
}

static void set_rope(json_t *config, const struct checkpoint *c, const json_t *meta, const char *architecture)
{
    const struct stored_tensor *factors = checkpoint_find(c, "rope_freqs.weight");
    json_t *rotary = size_of(meta, architecture, "rope.dimension_count"),
           *head = json_object_get(config, "head_dim");
    const char *type = json_string_value(size_of(meta, architecture, "rope.scaling.type"));
    if (json_integer_value(rotary) > 0 && json_integer_value(head) > 0)
        set(config, "partial_rotary_factor",
            json_real((double)json_integer_value(rotary) / (double)json_integer_value(head)));
    if (factors && factors->dtype == CODA_F32 && factors->rank == 1 && factors->dims[0] <= 512)
        set(config, "rope_scaling",
            json_pack("{s:s, s:o}", "rope_type", "factors", "factors", rope_factors(factors)));
    else if (type && strcmp(type, "none"))
        set(config, "rope_scaling",
            json_pack("{s:s, s:O?}", "rope_type", type, "factor",
                      size_of(meta, architecture, "rope.scaling.factor")));
    set(config, "rope_interleaved", json_boolean(!strcmp(architecture, "llama")));
}

json_t *gguf_config(const struct checkpoint *c, const json_t *meta, struct fault *f)
{
    const char *architecture = json_string_value(json_object_get(meta, "general.architecture"));
    const struct architecture *a = architecture_of(architecture);
    json_int_t rows = rows_of(c, architecture, "token_embd.weight");
    json_t *end = json_object_get(meta, "tokenizer.ggml.eos_token_id"), *config = json_object();
    json_t *turn_end = json_object_get(meta, "tokenizer.ggml.eot_token_id");
    json_t *chat = json_object_get(meta, "tokenizer.chat_template");
    if (!a) {
        fault_set(f, "GGUF: architecture %.40s is not supported", architecture);
        json_decref(config);
        return NULL;
    }
    for (size_t i = 0; i < sizeof sizes / sizeof *sizes; i++) {
        json_t *v = size_of(meta, architecture, sizes[i].gguf);
        if (v) json_object_set(config, sizes[i].ours, v);
    }
    set(config, "model_type", json_string(a->ours));
    set(config, "hidden_activation", json_string("silu"));
    if (rows) set(config, "vocab_size", json_integer(rows));
    if (end && turn_end) set(config, "eos_token_id", json_pack("[O, O]", end, turn_end));
    else if (end) json_object_set(config, "eos_token_id", end);
    if (chat) json_object_set(config, "chat_template", chat);
    set(config, "attention_bias", json_boolean(checkpoint_find(c, "model.layers.0.self_attn.o_proj.bias")));
    set(config, "mlp_bias", json_boolean(checkpoint_find(c, "model.layers.0.mlp.down_proj.bias")));
    if (!strncmp(architecture, "gemma", 5)) set_gemma(config, architecture);
    if (!strcmp(architecture, "bert")) set_bert(config, c);
    if (!strcmp(architecture, "gpt2")) set_gpt2(config);
    set_rope(config, c, meta, architecture);
    return config;
}
