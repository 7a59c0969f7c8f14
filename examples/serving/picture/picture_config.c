/*
 * picture_config.c -- transformer/config.json as diffusers writes it.
 */
#include <string.h>

#include "keys.h"
#include "picture_config.h"

static const char *const classes[] = {"DiTTransformer2DModel", "PixArtTransformer2DModel",
                                      "SD3Transformer2DModel", "FluxTransformer2DModel",
                                      "WanTransformer3DModel", NULL};
enum {
    DIT = 1 << PICTURE_DIT,
    PIXART = 1 << PICTURE_PIXART,
    SD3 = 1 << PICTURE_SD3,
    FLUX = 1 << PICTURE_FLUX,
    WAN = 1 << PICTURE_WAN,
    PLAIN = DIT | PIXART,
};

static const struct key keys[] = {
    {"_class_name", KEY_ALL, KEY_READ, NULL,
     "the class; Transformer2DModel, as older files have it, by norm_type"},
    {"_diffusers_version _name_or_path", KEY_ALL, KEY_IGNORED, NULL, "who wrote it"},
    {"num_attention_heads attention_head_dim num_layers in_channels", KEY_ALL, KEY_READ, NULL, "sizes"},
    {"out_channels", KEY_ALL, KEY_READ, NULL,
     "channels of the result; the first in_channels of them are used. in_channels where it is null"},
    {"patch_size", PLAIN | SD3, KEY_READ, NULL, "latents of a patch's side"},
    {"patch_size", FLUX, KEY_IGNORED, "[1]", "patches are 2 x 2, packed in columns"},
    {"patch_size", WAN, KEY_READ, NULL, "frames, which must be 1, rows and columns of a patch"},
    {"text_dim ffn_dim eps cross_attn_norm rope_max_seq_len", WAN, KEY_READ, NULL,
     "columns of texts and within MLPs; of norms; patches on an axis, at most"},
    {"freq_dim", WAN, KEY_IGNORED, "[256]", "columns of times"},
    {"qk_norm", WAN, KEY_IGNORED, "[\"rms_norm_across_heads\"]", "queries and keys have a norm of all heads"},
    {"image_dim added_kv_proj_dim pos_embed_seq_len", WAN, KEY_IGNORED, "[null]", "pictures as conditions"},
    {"sample_size", PLAIN | SD3, KEY_READ, NULL, "side of the latents it was trained on"},
    {"num_single_layers guidance_embeds axes_dims_rope", FLUX, KEY_READ, NULL,
     "blocks of one stream; whether guidance is a condition; columns of each axis"},
    {"joint_attention_dim pooled_projection_dim", SD3 | FLUX, KEY_READ, NULL, "columns of texts"},
    {"caption_projection_dim", SD3, KEY_READ, NULL, "must be heads times their columns"},
    {"pos_embed_max_size qk_norm dual_attention_layers", SD3, KEY_READ, NULL,
     "side of the table of positions; rms_norm or null; blocks that attend twice to the picture"},
    {"num_embeds_ada_norm", DIT, KEY_READ, NULL, "classes"},
    {"num_embeds_ada_norm", PIXART, KEY_IGNORED, NULL, "there are no classes"},
    {"norm_eps attention_bias activation_fn norm_type", PLAIN, KEY_READ, NULL, "of blocks"},
    {"caption_channels cross_attention_dim interpolation_scale use_additional_conditions", PIXART, KEY_READ,
     NULL,
     "columns of texts; a divisor of positions; whether sides are conditions, as they are where sample_size "
     "is 128"},
    {"caption_channels cross_attention_dim interpolation_scale use_additional_conditions", DIT, KEY_IGNORED,
     "[null]", "older files have members of other models"},
    {"attention_type", PLAIN, KEY_IGNORED, "[\"default\", null]", "another kind has more tensors"},
    {"norm_elementwise_affine double_self_attention only_cross_attention use_linear_projection", PLAIN,
     KEY_IGNORED, "[false]", "others have more tensors"},
    {"num_vector_embeds", PLAIN, KEY_IGNORED, "[null]", "of discrete pictures"},
    {"dropout norm_num_groups upcast_attention", PLAIN, KEY_IGNORED, NULL,
     "of training; of another kind of input; the order of roundings"},
};
const struct key_table picture_keys = {"transformer/config.json", classes, keys, sizeof keys / sizeof *keys};

enum { MOST_SIZE = 1 << 16 };

static const char *text(struct keys *k, const char *name, const char *fallback)
{
    json_t *v = keys_get(k, name);
    return v ? json_string_value(v) : fallback;
}

/* ---- Which one ---- */

static bool find_class(struct picture_config *c, const json_t *o, struct fault *f)
{
    const char *name = json_string_value(json_object_get(o, "_class_name"));
    const char *norm = json_string_value(json_object_get(o, "norm_type"));
    if (!name) return fault_set(f, "config: _class_name is missing");
    if (!strcmp(name, "Transformer2DModel") && norm)
        name = !strcmp(norm, "ada_norm_zero")     ? classes[PICTURE_DIT]
               : !strcmp(norm, "ada_norm_single") ? classes[PICTURE_PIXART]
                                                  : name;
    for (int i = 0; classes[i]; i++)
        if (!strcmp(name, classes[i])) {
            c->kind = (enum picture_kind)i;
            strcpy(c->name, name);
            return true;
        }
    return fault_set(f, "config: _class_name '%.60s' is not supported: %s, %s, %s, %s and %s are", name,
                     classes[0], classes[1], classes[2], classes[3], classes[4]);
}

/* ---- The members ---- */

static bool read_sizes(struct picture_config *c, struct keys *k, struct fault *f)
{
    static const int heads[] = {16, 16, 18, 24, 40}, columns[] = {72, 72, 64, 128, 128},
                     layers[] = {28, 28, 18, 19, 40}, channels[] = {4, 4, 16, 64, 16},
                     samples[] = {32, 128, 128, 128};
    bool wan = c->kind == PICTURE_WAN;
    if (!config_int(k, "num_attention_heads", NULL, 1, MOST_SIZE, heads[c->kind], &c->heads, f) ||
        !config_int(k, "attention_head_dim", NULL, 1, MOST_SIZE, columns[c->kind], &c->head_dim, f) ||
        !config_int(k, "num_layers", NULL, 1, MOST_LAYERS, layers[c->kind], &c->layers, f) ||
        !config_int(k, "in_channels", NULL, 1, MOST_SIZE, channels[c->kind], &c->channels, f) ||
        !config_int(k, "out_channels", NULL, 1, MOST_SIZE, c->kind == PICTURE_PIXART ? 8 : c->channels,
                    &c->out_channels, f) ||
        (!wan &&
         (!config_int(k, "patch_size", NULL, 1, 64, 2, &c->patch, f) ||
          !config_int(k, "sample_size", NULL, 1, MOST_PICTURE_SIDE, samples[c->kind], &c->sample, f))))
        return false;
    int64_t hidden = (int64_t)c->heads * c->head_dim;
    if (hidden > MOST_SIZE || hidden % 4)
        return fault_set(f, "config: %d heads of %d columns: their product is no multiple of 4 up to %d",
                         c->heads, c->head_dim, MOST_SIZE);
    if (c->out_channels < c->channels)
        return fault_set(f, "config: out_channels %d are fewer than in_channels %d", c->out_channels,
                         c->channels);
    if (!wan && c->sample % c->patch)
        return fault_set(f, "config: patches of %d do not divide sample_size %d", c->patch, c->sample);
    c->hidden = (int)hidden, c->inner = 4 * c->hidden;
    c->sample_wide = c->sample;
    return true;
}

static bool read_plain(struct picture_config *c, struct keys *k, struct fault *f)
{
    static const char *const norms[] = {"ada_norm_zero", "ada_norm_single"};
    const char *norm = text(k, "norm_type", norms[c->kind]),
               *act = text(k, "activation_fn", "gelu-approximate");
    if (!norm || strcmp(norm, norms[c->kind]))
        return fault_set(f, "config: norm_type is '%.40s', and %s wants %s", norm ? norm : "?", c->name,
                         norms[c->kind]);
    if (!act || (strcmp(act, "gelu-approximate") && strcmp(act, "gelu")))
        return fault_set(f, "config: activation_fn '%.40s' is not supported: gelu-approximate and gelu are",
                         act ? act : "?");
    c->gelu_erf = !strcmp(act, "gelu");
    return config_number(k, "norm_eps", NULL, 0, 1, c->kind == PICTURE_DIT ? 1e-5 : 1e-6, &c->eps, f) &&
           config_bool(k, "attention_bias", true, &c->qkv_bias, f);
}

static bool read_pixart(struct picture_config *c, struct keys *k, struct fault *f)
{
    int cross, scale = c->sample / 64 > 1 ? c->sample / 64 : 1;
    json_t *caption = keys_get(k, "caption_channels");
    if (!config_int(k, "cross_attention_dim", NULL, 1, MOST_SIZE, c->hidden, &cross, f) ||
        !config_number(k, "interpolation_scale", NULL, 1e-3, 1e3, scale, &c->scale, f) ||
        !config_bool(k, "use_additional_conditions", c->sample == 128, &c->sizes, f) ||
        !config_int(k, "caption_channels", NULL, 1, MOST_SIZE, cross, &c->text_columns, f))
        return false;
    c->projects = caption != NULL;
    if (c->projects && cross != c->hidden)
        return fault_set(f, "config: cross_attention_dim %d, where texts become %d columns", cross,
                         c->hidden);
    return !c->sizes || c->hidden % 3 == 0 ||
           fault_set(f, "config: use_additional_conditions wants 3 to divide %d columns", c->hidden);
}

static bool read_dual(struct picture_config *c, struct keys *k, struct fault *f)
{
    json_t *list = keys_get(k, "dual_attention_layers");
    if (list && !json_is_array(list)) return fault_set(f, "config: dual_attention_layers is no list");
    for (size_t i = 0; i < json_array_size(list); i++) {
        json_t *v = json_array_get(list, i);
        long long layer = json_integer_value(v);
        if (!json_is_integer(v) || layer < 0 || layer >= c->layers)
            return fault_set(f, "config: dual_attention_layers: entry %zu is no block of %d", i, c->layers);
        c->dual[layer] = true;
    }
    return true;
}

static bool read_sd3(struct picture_config *c, struct keys *k, struct fault *f)
{
    int caption;
    json_t *v = keys_get(k, "qk_norm");
    const char *norm = json_string_value(v);
    if (!config_int(k, "joint_attention_dim", NULL, 1, MOST_SIZE, 4096, &c->text_columns, f) ||
        !config_int(k, "pooled_projection_dim", NULL, 1, MOST_SIZE, 2048, &c->pooled_columns, f) ||
        !config_int(k, "caption_projection_dim", NULL, 1, MOST_SIZE, 1152, &caption, f) ||
        !config_int(k, "pos_embed_max_size", NULL, 1, MOST_PICTURE_SIDE, 96, &c->positions, f) ||
        !read_dual(c, k, f))
        return false;
    if (caption != c->hidden)
        return fault_set(f, "config: caption_projection_dim %d, where streams have %d columns", caption,
                         c->hidden);
    if (v && (!norm || strcmp(norm, "rms_norm")))
        return fault_set(f, "config: qk_norm '%.40s' is not supported: rms_norm and null are",
                         norm ? norm : "?");
    c->qk_norm = v != NULL;
    return true;
}

static bool read_flux(struct picture_config *c, struct keys *k, struct fault *f)
{
    static const int standard[] = {16, 56, 56};
    json_t *axes = keys_get(k, "axes_dims_rope");
    int sum = 0;
    if (!config_int(k, "num_single_layers", NULL, 0, MOST_LAYERS, 38, &c->single_layers, f) ||
        !config_int(k, "joint_attention_dim", NULL, 1, MOST_SIZE, 4096, &c->text_columns, f) ||
        !config_int(k, "pooled_projection_dim", NULL, 1, MOST_SIZE, 768, &c->pooled_columns, f) ||
        !config_bool(k, "guidance_embeds", false, &c->guidance, f))
        return false;
    if (axes && json_array_size(axes) != 3) return fault_set(f, "config: axes_dims_rope is no list of three");
    for (size_t i = 0; i < 3; i++) {
        json_t *v = json_array_get(axes, i);
        long long n = axes ? json_integer_value(v) : standard[i];
        if (n < 2 || n > c->head_dim || n % 2)
            return fault_set(f, "config: axes_dims_rope: entry %zu is no even number from 2 to %d", i,
                             c->head_dim);
        sum += c->axes[i] = (int)n;
    }
    if (sum != c->head_dim)
        return fault_set(f, "config: axes_dims_rope add up to %d, and a head has %d columns", sum,
                         c->head_dim);
    if (c->channels % 4 || c->out_channels != c->channels)
        return fault_set(f, "config: %d and %d channels are no patches of 2 x 2", c->channels,
                         c->out_channels);
    c->channels /= 4, c->out_channels /= 4, c->patch = 2;
    return true;
}

/* [1, 2, 2]: frames, rows and columns. */
static bool read_patch(struct picture_config *c, struct keys *k, struct fault *f)
{
    json_t *list = keys_get(k, "patch_size");
    long long side[3] = {1, 2, 2};
    for (size_t i = 0; list && i < 3; i++) side[i] = json_integer_value(json_array_get(list, i));
    c->patch = (int)side[1];
    return (side[0] == 1 && side[1] == side[2] && side[1] > 0 && side[1] <= 64 &&
            (!list || json_array_size(list) == 3)) ||
           fault_set(f, "config: patch_size is not [1, N, N] for an N from 1 to 64");
}

/* Of 480 x 832 pixels and 81 frames, as they are trained on; the axes of frames has what the others leave. */
static bool read_wan(struct picture_config *c, struct keys *k, struct fault *f)
{
    int side = c->head_dim / 6 * 2;
    c->sample = 60, c->sample_wide = 104, c->frames = 21;
    c->axes[0] = c->head_dim - 2 * side, c->axes[1] = c->axes[2] = side;
    if (side < 2 || c->head_dim % 2)
        return fault_set(f, "config: heads of %d columns are no even number of 6 or more", c->head_dim);
    return read_patch(c, k, f) && config_int(k, "text_dim", NULL, 1, MOST_SIZE, 4096, &c->text_columns, f) &&
           config_int(k, "ffn_dim", NULL, 1, MOST_SIZE, 13824, &c->inner, f) &&
           config_int(k, "rope_max_seq_len", NULL, 1, MOST_SIZE, 1024, &c->most_side, f) &&
           config_number(k, "eps", NULL, 0, 1, 1e-6, &c->eps, f) &&
           config_bool(k, "cross_attn_norm", true, &c->cross_norm, f);
}

bool picture_config_read(struct picture_config *c, const json_t *o, struct fault *f)
{
    struct keys k;
    *c = (struct picture_config){.eps = 1e-6, .scale = 1, .qkv_bias = true};
    if (!find_class(c, o, f)) return false;
    keys_begin(&k, &picture_keys, c->name, o, "config");
    keys_get(&k, "_class_name");
    bool good = read_sizes(c, &k, f);
    if (good && (c->kind == PICTURE_DIT || c->kind == PICTURE_PIXART)) good = read_plain(c, &k, f);
    if (good && c->kind == PICTURE_DIT)
        good = config_int(&k, "num_embeds_ada_norm", NULL, 1, MOST_SIZE, 1000, &c->classes, f);
    if (good && c->kind == PICTURE_PIXART) good = read_pixart(c, &k, f);
    if (good && c->kind == PICTURE_SD3) good = read_sd3(c, &k, f);
    if (good && c->kind == PICTURE_FLUX) good = read_flux(c, &k, f);
    if (good && c->kind == PICTURE_WAN) good = read_wan(c, &k, f);
    return config_done(&k, good, f);
}
