/*
 * gguf_names.c -- GGUF's names of tensors as transformers has them.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "gguf.h"

struct pair {
    const char *gguf, *ours;
};

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

const char *gguf_family(const char *architecture)
{
    const struct architecture *a = architecture_of(architecture);
    return a ? a->ours : NULL;
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
