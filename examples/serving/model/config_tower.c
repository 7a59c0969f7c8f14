/*
 * config_tower.c -- config.json of a tower within a larger model, the encoder of images or the decoder of
 * text: what transformers leaves out where it is the default; and the sizes of images.
 */
#include <string.h>

#include "config.h"
#include "config_keys.h"

/* transformers' defaults, by model_type of a tower. */
static const struct {
    const char *family, *members;
} defaults[] = {
    {"vit", "{\"hidden_size\": 768, \"num_hidden_layers\": 12, \"num_attention_heads\": 12,"
            " \"intermediate_size\": 3072, \"hidden_act\": \"gelu\", \"layer_norm_eps\": 1e-12,"
            " \"image_size\": 224, \"patch_size\": 16, \"num_channels\": 3}"},
    {"siglip_vision_model", "{\"hidden_size\": 768, \"num_hidden_layers\": 12, \"num_attention_heads\": 12,"
                            " \"intermediate_size\": 3072, \"hidden_act\": \"gelu_pytorch_tanh\","
                            " \"layer_norm_eps\": 1e-6, \"image_size\": 224, \"patch_size\": 16,"
                            " \"num_channels\": 3}"},
    {"gemma3_text", "{\"vocab_size\": 262208, \"hidden_size\": 2304, \"intermediate_size\": 9216,"
                    " \"num_hidden_layers\": 26, \"num_attention_heads\": 8, \"num_key_value_heads\": 4,"
                    " \"head_dim\": 256, \"hidden_activation\": \"gelu_pytorch_tanh\","
                    " \"max_position_embeddings\": 131072, \"rms_norm_eps\": 1e-6,"
                    " \"query_pre_attn_scalar\": 256, \"sliding_window\": 4096}"},
    {"mistral", "{\"vocab_size\": 32000, \"hidden_size\": 4096, \"intermediate_size\": 14336,"
                " \"num_hidden_layers\": 32, \"num_attention_heads\": 32, \"num_key_value_heads\": 8,"
                " \"hidden_act\": \"silu\", \"max_position_embeddings\": 131072, \"rms_norm_eps\": 1e-6,"
                " \"sliding_window\": 4096}"},
    {"qwen3_5_text", "{\"vocab_size\": 248320, \"hidden_size\": 4096, \"intermediate_size\": 12288,"
                     " \"num_hidden_layers\": 32, \"num_attention_heads\": 16, \"num_key_value_heads\": 4,"
                     " \"hidden_act\": \"silu\", \"max_position_embeddings\": 32768, \"rms_norm_eps\": 1e-6,"
                     " \"head_dim\": 256, \"linear_conv_kernel_dim\": 4, \"linear_key_head_dim\": 128,"
                     " \"linear_value_head_dim\": 128, \"linear_num_key_heads\": 16,"
                     " \"linear_num_value_heads\": 32, \"partial_rotary_factor\": 0.25}"},
};

/* Of models that are no towers, such of them as neither shapes of tensors nor an error would tell. */
static const struct {
    const char *family, *members;
} quiet[] = {
    {"mistral", "{\"sliding_window\": 4096}"},
    {"nemotron_h", "{\"head_dim\": 128, \"mlp_hidden_act\": \"relu2\"}"},
    {"qwen3_5_text", "{\"head_dim\": 256, \"linear_conv_kernel_dim\": 4, \"linear_key_head_dim\": 128,"
                     " \"linear_value_head_dim\": 128, \"linear_num_key_heads\": 16,"
                     " \"linear_num_value_heads\": 32, \"partial_rotary_factor\": 0.25}"},
    {"gemma2", "{\"sliding_window\": 4096, \"attn_logit_softcapping\": 50, \"final_logit_softcapping\": 30,"
               " \"query_pre_attn_scalar\": 256}"},
    {"gemma3_text", "{\"sliding_window\": 4096, \"query_pre_attn_scalar\": 256}"},
};

/* Which tower of a larger model is read. */
static const struct {
    const char *family, *member, *tower; /* tower: its model_type where it names none */
} towers[] = {
    {"siglip", "vision_config", "siglip_vision_model"},
    {"gemma3", "text_config", "gemma3_text"},
    {"mistral3", "text_config", "mistral"},
    {"qwen3_5", "text_config", "qwen3_5_text"},
};

/* Members over defaults. A new reference. */
static json_t *over(const char *defaulted, const json_t *o)
{
    json_t *all = json_loads(defaulted, 0, NULL);
    if (all) json_object_update(all, (json_t *)(uintptr_t)o);
    return all;
}

/* The object with the defaults of its family, as transformers has them. */
static json_t *completed(const json_t *o, const char *family)
{
    for (size_t i = 0; i < sizeof defaults / sizeof *defaults; i++)
        if (!strcmp(defaults[i].family, family)) return over(defaults[i].members, o);
    return over("{}", o);
}

static json_t *model_completed(const json_t *o, const char *family)
{
    if (!strcmp(family, "vit") || !strcmp(family, "siglip_vision_model")) return completed(o, family);
    for (size_t i = 0; i < sizeof quiet / sizeof *quiet; i++)
        if (!strcmp(quiet[i].family, family)) return over(quiet[i].members, o);
    return json_incref((json_t *)(uintptr_t)o);
}

/* `k` is the whole, some of whose members the tower has, too, where it has none of its own. */
static json_t *tower_in(struct keys *k, const char *member, const char *usual, struct fault *f)
{
    const json_t *tower = keys_get(k, member);
    if (!json_is_object(tower)) return fault_set(f, "config: %s is missing", member), NULL;
    const char *own = json_string_value(json_object_get(tower, "model_type"));
    json_t *all = completed(tower, own ? own : usual);
    json_t *ends = keys_get(k, "eos_token_id"), *tie = keys_get(k, "tie_word_embeddings"),
           *inner = json_object_get(tower, "tie_word_embeddings");
    json_t *quant = keys_get(k, "quantization_config");
    if (!quant) quant = keys_get(k, "compression_config");
    if (quant) json_object_set(all, "quantization_config", quant);
    if (ends) json_object_set(all, "eos_token_id", ends);
    if (tie && !inner) json_object_set(all, "tie_word_embeddings", tie);
    if (tie && inner && !json_equal(tie, inner)) {
        json_decref(all);
        return fault_set(f, "config: tie_word_embeddings is not the same in %s", member), NULL;
    }
    if (!own) json_object_set_new(all, "model_type", json_string(usual));
    if (!all) fault_set(f, "out of memory");
    return all;
}

json_t *config_tower(const json_t *o, struct fault *f)
{
    const char *family = json_string_value(json_object_get(o, "model_type"));
    struct keys k;
    if (!family) return fault_set(f, "config: model_type is missing"), NULL;
    for (size_t i = 0; i < sizeof towers / sizeof *towers; i++) {
        if (strcmp(towers[i].family, family)) continue;
        keys_begin(&k, &config_keys, family, o, "config");
        keys_get(&k, "model_type");
        json_t *tower = tower_in(&k, towers[i].member, towers[i].tower, f);
        if (config_done(&k, tower != NULL, f)) return tower;
        return json_decref(tower), NULL;
    }
    json_t *all = model_completed(o, family);
    if (!all) fault_set(f, "out of memory");
    return all;
}

/* Images are squares; what is left of one beyond whole patches is not seen. */
bool config_image(struct config *c, struct keys *k, struct fault *f)
{
    bool head;
    if (strcmp(c->family, "vit") && strcmp(c->family, "siglip_vision_model")) return true;
    if (!config_int(k, "image_size", NULL, 1, 1 << 14, 0, &c->image, f) ||
        !config_int(k, "patch_size", NULL, 1, 1 << 10, 0, &c->patch, f) ||
        !config_int(k, "num_channels", NULL, 1, 64, 0, &c->channels, f) ||
        !config_bool(k, "qkv_bias", true, &c->qkv_bias, f) ||
        !config_bool(k, "vision_use_head", true, &head, f))
        return false;
    if (!head) return fault_set(f, "config: images without a head, vision_use_head, are not supported");
    return c->patch <= c->image || fault_set(f, "config: patches of %d in images of %d", c->patch, c->image);
}
