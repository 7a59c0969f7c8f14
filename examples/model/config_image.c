/*
 * config_image.c -- config.json of image encoders: a tower within a larger model, what transformers leaves
 * out where it is the default, and the sizes of images.
 */
#include <string.h>

#include "config.h"

/* transformers' defaults, by model_type. */
static const struct {
    const char *family, *sizes;
} defaults[] = {
    {"vit", "{\"hidden_size\": 768, \"num_hidden_layers\": 12, \"num_attention_heads\": 12,"
            " \"intermediate_size\": 3072, \"hidden_act\": \"gelu\", \"layer_norm_eps\": 1e-12,"
            " \"image_size\": 224, \"patch_size\": 16, \"num_channels\": 3}"},
    {"siglip_vision_model", "{\"hidden_size\": 768, \"num_hidden_layers\": 12, \"num_attention_heads\": 12,"
                            " \"intermediate_size\": 3072, \"hidden_act\": \"gelu_pytorch_tanh\","
                            " \"layer_norm_eps\": 1e-6, \"image_size\": 224, \"patch_size\": 16,"
                            " \"num_channels\": 3}"},
};

json_t *config_tower(const json_t *o, struct fault *f)
{
    const char *family = json_string_value(json_object_get(o, "model_type"));
    json_t *tower = json_object_get(o, "vision_config"), *all;
    if (family && !strcmp(family, "siglip")) {
        if (!json_is_object(tower)) return fault_set(f, "config: vision_config is missing"), NULL;
        family = "siglip_vision_model";
        o = tower;
    }
    for (size_t i = 0; family && i < sizeof defaults / sizeof *defaults; i++) {
        if (strcmp(defaults[i].family, family)) continue;
        all = json_loads(defaults[i].sizes, 0, NULL);
        json_object_update(all, (json_t *)(uintptr_t)o);
        json_object_set_new(all, "model_type", json_string(family));
        if (!all) fault_set(f, "out of memory");
        return all;
    }
    return json_incref((json_t *)(uintptr_t)o);
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
