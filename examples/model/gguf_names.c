/*
 * gguf_names.c -- GGUF's names of sizes and tensors as transformers has them.
 *
 * Values differ, too: LLaMA's rows of q and k are permuted so that RoPE turns neighbours, Gemma's gains have
 * their 1, and LLaMA 3.1's frequencies are divided by the tensor rope_freqs.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "gguf.h"

struct pair {
    const char *gguf, *ours;
};

static const struct pair architectures[] = {
    {"llama", "llama"}, {"qwen2", "qwen2"},   {"qwen3", "qwen3"},       {"phi3", "phi3"},
    {"gemma", "gemma"}, {"gemma2", "gemma2"}, {"gemma3", "gemma3_text"}};

/* Behind the architecture and a dot. */
static const struct pair sizes[] = {{"block_count", "num_hidden_layers"},
                                    {"context_length", "max_position_embeddings"},
                                    {"embedding_length", "hidden_size"},
                                    {"feed_forward_length", "intermediate_size"},
                                    {"attention.head_count", "num_attention_heads"},
                                    {"attention.head_count_kv", "num_key_value_heads"},
                                    {"attention.key_length", "head_dim"},
                                    {"attention.layer_norm_rms_epsilon", "rms_norm_eps"},
                                    {"attention.sliding_window", "sliding_window"},
                                    {"rope.freq_base", "rope_theta"},
                                    {"attn_logit_softcapping", "attn_logit_softcapping"},
                                    {"final_logit_softcapping", "final_logit_softcapping"}};

/* ---- Names of tensors ---- */

static const struct pair outside[] = {
    {"token_embd", "model.embed_tokens"}, {"output_norm", "model.norm"}, {"output", "lm_head"}};

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
                                     {"post_ffw_norm", "post_feedforward_layernorm"}};

static const char *find(const struct pair *all, size_t count, const char *name, size_t length)
{
    for (size_t i = 0; i < count; i++)
        if (strlen(all[i].gguf) == length && !memcmp(all[i].gguf, name, length)) return all[i].ours;
    return NULL;
}

/* Where families differ in what they call a part. */
static const char *part(const char *architecture, const char *name, size_t length)
{
    bool fused = !strcmp(architecture, "phi3"),
         both = !strcmp(architecture, "gemma2") || !strcmp(architecture, "gemma3");
    if (fused && length == 6 && !memcmp(name, "ffn_up", 6)) return "mlp.gate_up_proj";
    if (both && length == 8 && !memcmp(name, "ffn_norm", 8)) return "pre_feedforward_layernorm";
    return find(inside, sizeof inside / sizeof *inside, name, length);
}

void gguf_name(const char *architecture, const char *name, char *to, size_t size)
{
    const char *dot = strrchr(name, '.'), *ours = NULL;
    char *rest;
    if (dot && !strncmp(name, "blk.", 4) && name[4] >= '0' && name[4] <= '9') {
        unsigned long layer = strtoul(name + 4, &rest, 10);
        if (*rest == '.' && rest < dot) ours = part(architecture, rest + 1, (size_t)(dot - rest - 1));
        if (ours) snprintf(to, size, "model.layers.%lu.%s%s", layer, ours, dot);
    } else if (dot) {
        ours = find(outside, sizeof outside / sizeof *outside, name, (size_t)(dot - name));
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
    const char *ours =
        find(architectures, sizeof architectures / sizeof *architectures, architecture, strlen(architecture));
    const struct stored_tensor *table = checkpoint_find(c, "model.embed_tokens.weight");
    json_t *end = json_object_get(meta, "tokenizer.ggml.eos_token_id"), *config = json_object();
    json_t *turn_end = json_object_get(meta, "tokenizer.ggml.eot_token_id");
    json_t *chat = json_object_get(meta, "tokenizer.chat_template");
    if (!ours) {
        fault_set(f, "GGUF: architecture %.40s is not supported", architecture);
        json_decref(config);
        return NULL;
    }
    for (size_t i = 0; i < sizeof sizes / sizeof *sizes; i++) {
        json_t *v = size_of(meta, architecture, sizes[i].gguf);
        if (v) json_object_set(config, sizes[i].ours, v);
    }
    set(config, "model_type", json_string(ours));
    set(config, "hidden_activation", json_string("silu"));
    if (table && table->rank == 2) set(config, "vocab_size", json_integer(table->dims[0]));
    if (end && turn_end) set(config, "eos_token_id", json_pack("[O, O]", end, turn_end));
    else if (end) json_object_set(config, "eos_token_id", end);
    if (chat) json_object_set(config, "chat_template", chat);
    set(config, "attention_bias", json_boolean(checkpoint_find(c, "model.layers.0.self_attn.o_proj.bias")));
    set(config, "mlp_bias", json_boolean(checkpoint_find(c, "model.layers.0.mlp.down_proj.bias")));
    if (!strncmp(architecture, "gemma", 5)) set_gemma(config, architecture);
    set_rope(config, c, meta, architecture);
    return config;
}
