/*
 * tensor_keys.c -- what becomes of tensors that no graph has read: each is on a list of those without which
 * logits and vectors are the same, or refused by its name.
 */
#include <string.h>

#include "build.h"
#include "config_keys.h"

static const char *const families[] = {"llama",
                                       "mistral",
                                       "qwen2",
                                       "qwen3",
                                       "phi3",
                                       "gemma",
                                       "gemma2",
                                       "gemma3_text",
                                       "gpt2",
                                       "bert",
                                       "vit",
                                       "siglip_vision_model",
                                       "mamba",
                                       "mamba2",
                                       "qwen3_5_text",
                                       "nemotron_h",
                                       "granitemoehybrid",
                                       "falcon_h1",
                                       NULL};
enum {
    ROTARY = (1 << 8) - 1,
    MISTRAL = 1 << 1,
    GEMMA3 = 1 << 7,
    GPT2 = 1 << 8,
    BERT = 1 << 9,
    VIT = 1 << 10,
    SIGLIP = 1 << 11,
    MAMBAS = 3 << 12,
    QWEN35 = 1 << 14,
    NEMOTRON = 1 << 15,
    HYBRIDS = 7 << 15
};

static const struct key keys[] = {
    {"*rotary_emb.inv_freq", ROTARY, KEY_IGNORED, NULL,
     "frequencies of RoPE that older versions of transformers kept; config.json tells them"},
    {"h.#.attn.bias h.#.attn.masked_bias transformer.h.#.attn.bias transformer.h.#.attn.masked_bias", GPT2,
     KEY_IGNORED, NULL, "the causal mask as a table, and what stands for minus infinity"},
    {"embeddings.position_ids bert.embeddings.position_ids", BERT, KEY_IGNORED, NULL, "0, 1, 2 and so on"},
    {"pooler.dense.weight pooler.dense.bias bert.pooler.dense.weight bert.pooler.dense.bias"
     " cls.predictions.* cls.seq_relationship.*",
     BERT, KEY_IGNORED, NULL, "heads of the training, which come behind the states that are pooled"},
    {"pooler.dense.weight pooler.dense.bias vit.pooler.dense.weight vit.pooler.dense.bias classifier.weight"
     " classifier.bias",
     VIT, KEY_IGNORED, NULL, "heads that come behind the vector"},
    {"embeddings.mask_token vit.embeddings.mask_token", VIT, KEY_IGNORED, NULL,
     "what stands for patches that training hides"},
    {"text_model.* logit_scale logit_bias", SIGLIP, KEY_IGNORED, NULL, "the other tower, and the loss"},
    {"vision_model.embeddings.position_ids embeddings.position_ids", SIGLIP, KEY_IGNORED, NULL,
     "0, 1, 2 and so on"},
    {"*.input_scale *.input_global_scale *.input_zero_point *.output_scale *.k_scale *.v_scale *.q_scale"
     " *.kv_scale *.prob_scale",
     ROTARY | GPT2 | BERT | MAMBAS | QWEN35 | HYBRIDS, KEY_IGNORED, NULL,
     "how activations and caches may be quantised: here they are not"},
    {"vision_tower.* multi_modal_projector.* model.vision_tower.* model.multi_modal_projector.*",
     GEMMA3 | MISTRAL, KEY_IGNORED, NULL, "the encoder of images: a text has none"},
    {"visual.* model.visual.*", QWEN35, KEY_IGNORED, NULL, "the encoder of images: a text has none"},
    {"mtp.*", QWEN35 | NEMOTRON, KEY_IGNORED, NULL,
     "a layer that drafts further tokens: the others do not read it"},
};
const struct key_table tensor_keys = {"tensors that no graph reads", families, keys,
                                      sizeof keys / sizeof *keys};

/* Whether the table of tokens has the bytes of a head that is tied to it: versions 4 and 5 of transformers
 * take different ones of two that differ. */
static bool is_table(const struct checkpoint *c, const struct stored_tensor *head)
{
    for (int i = 0; i < c->count; i++) {
        const struct stored_tensor *t = &c->tensor[i];
        if (t->used && (name_ends(t->name, "embed_tokens.weight") || name_ends(t->name, "wte.weight") ||
                        name_ends(t->name, "embeddings.weight")))
            return t->bytes == head->bytes && t->dtype == head->dtype &&
                   !memcmp(t->data, head->data, t->bytes);
    }
    return false;
}

/* AutoGPTQ writes a bias for each product, of zeros where the model has none. */
static bool is_nothing(const struct build *b, const struct stored_tensor *t)
{
    size_t i = 0;
    if (b->c->quant.method != QUANT_GPTQ || !name_ends(t->name, ".bias")) return false;
    while (i < t->bytes && !t->data[i]) i++;
    return i == t->bytes;
}

static bool left_over(const struct build *b, const struct stored_tensor *t)
{
    const char *stored = t->stored ? t->stored : t->name;
    bool head = b->c->tied > 0 && name_ends(t->name, "lm_head.weight");
    unsigned bit = key_family(&tensor_keys, b->c->family);
    if (t->used || is_nothing(b, t) || key_find(&tensor_keys, bit, KEY_IGNORED, t->name, NULL)) return true;
    if (head && is_table(b->from, t)) return true;
    if (head)
        return fault_set(b->fault,
                         "tensor %.120s: it is not the table of tokens, which the config ties it to", stored);
    return fault_set(b->fault, "tensor %.120s is not read by family %s, and may change what is computed",
                     stored, b->c->family);
}

bool build_done(struct build *b)
{
    for (int i = 0; b->from && !b->failed && i < b->from->count; i++)
        if (!left_over(b, &b->from->tensor[i])) b->failed = true;
    return !b->failed;
}
