/*
 * config_tower.c -- config.json of a tower within a larger model, the encoder of images or the decoder of
 * text: what transformers leaves out where it is the default; and the sizes of images.
 */
#include <string.h>

#include "config.h"

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
};

/* Which tower of a larger model is read. */
static const struct {
    const char *family, *member, *tower; /* tower: its model_type where it names none */
} towers[] = {
    {"siglip", "vision_config", "siglip_vision_model"},
    {"gemma3", "text_config", "gemma3_text"},
    {"mistral3", "text_config", "mistral"},
};

/* The object with the defaults of its family; `whole` says what the tower leaves to it. */
static json_t *completed(const json_t *o, const char *family, const json_t *whole, struct fault *f)
{
    static const char *const shared[] = {"eos_token_id", "tie_word_embeddings", "quantization_config"};
    json_t *all = json_object();
    for (size_t i = 0; i < sizeof defaults / sizeof *defaults; i++) {
        if (strcmp(defaults[i].family, family)) continue;
        json_decref(all);
        all = json_loads(defaults[i].members, 0, NULL);
    }
    for (size_t i = 0; i < sizeof shared / sizeof *shared; i++)
        if (json_object_get(whole, shared[i]))
            json_object_set(all, shared[i], json_object_get(whole, shared[i]));
    json_object_update(all, (json_t *)(uintptr_t)o);
    json_object_set_new(all, "model_type", json_string(family));
    if (!all) fault_set(f, "out of memory");
    return all;
}

json_t *config_tower(const json_t *o, struct fault *f)
{
    const char *family = json_string_value(json_object_get(o, "model_type"));
    for (size_t i = 0; family && i < sizeof towers / sizeof *towers; i++) {
        const json_t *tower = json_object_get(o, towers[i].member);
        if (strcmp(towers[i].family, family)) continue;
        if (!json_is_object(tower)) return fault_set(f, "config: %s is missing", towers[i].member), NULL;
        const char *own = json_string_value(json_object_get(tower, "model_type"));
        return completed(tower, own ? own : towers[i].tower, o, f);
    }
    bool image = family && (!strcmp(family, "vit") || !strcmp(family, "siglip_vision_model"));
    return image ? completed(o, family, NULL, f) : json_incref((json_t *)(uintptr_t)o);
}

/* Images are squares; what is left of one beyond whole patches is not seen. */
bool config_image(struct config *c, const json_t *o, struct fault *f)
{
    bool head;
    if (strcmp(c->family, "vit") && strcmp(c->family, "siglip_vision_model")) return true;
    if (!config_int(o, "image_size", NULL, 1, 1 << 14, 0, &c->image, f) ||
        !config_int(o, "patch_size", NULL, 1, 1 << 10, 0, &c->patch, f) ||
        !config_int(o, "num_channels", NULL, 1, 64, 0, &c->channels, f) ||
        !config_bool(o, "qkv_bias", true, &c->qkv_bias, f) ||
        !config_bool(o, "vision_use_head", true, &head, f))
        return false;
    if (!head) return fault_set(f, "config: images without a head, vision_use_head, are not supported");
    return c->patch <= c->image || fault_set(f, "config: patches of %d in images of %d", c->patch, c->image);
}
