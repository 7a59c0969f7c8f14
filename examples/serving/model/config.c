/*
 * config.c -- config.json as Hugging Face's transformers writes it, versions 4 and 5.
 */
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "config.h"
#include "config_keys.h"

enum { MOST_WIDTH = 1 << 20, MOST_VOCABULARY = 1 << 22, MOST_POSITIONS = 1 << 23 };

/* ---- Members ---- */

/* NULL where it is absent or null. */
static json_t *member(struct keys *k, const char *name, const char *other)
{
    json_t *v = keys_get(k, name);
    return v || !other ? v : keys_get(k, other);
}

bool config_int(struct keys *k, const char *name, const char *other, long long least, long long most,
                long long fallback, int *out, struct fault *f)
{
    json_t *v = member(k, name, other);
    long long n = v ? json_integer_value(v) : fallback;
    if (!v && fallback < least) return fault_set(f, "config: %s is missing", name);
    if (v && (!json_is_integer(v) || n < least || n > most))
        return fault_set(f, "config: %s is no whole number from %lld to %lld", name, least, most);
    *out = (int)n;
    return true;
}

bool config_number(struct keys *k, const char *name, const char *other, double least, double most,
                   double fallback, double *out, struct fault *f)
{
    json_t *v = member(k, name, other);
    double x = v ? json_number_value(v) : fallback;
    if (!v && !(fallback >= least)) return fault_set(f, "config: %s is missing", name);
    if (v && (!json_is_number(v) || !(x >= least && x <= most)))
        return fault_set(f, "config: %s is no number from %g to %g", name, least, most);
    *out = x;
    return true;
}

bool config_bool(struct keys *k, const char *name, bool fallback, bool *out, struct fault *f)
{
    json_t *v = member(k, name, NULL);
    if (v && !json_is_boolean(v)) return fault_set(f, "config: %s is neither true nor false", name);
    *out = v ? json_is_true(v) : fallback;
    return true;
}

bool config_done(struct keys *k, bool good, struct fault *f)
{
    if (good) return keys_end(k, f->text, sizeof f->text) || fault_clean(f);
    keys_leave(k);
    return false;
}

static bool is_family(const struct config *c, const char *name)
{
    return !strncmp(c->family, name, strlen(name));
}

/* ---- What each part of a block wants ---- */

static bool read_sizes(struct config *c, struct keys *k, struct fault *f)
{
    bool gpt2 = is_family(c, "gpt2"), images = c->image > 0;
    const char *inner = is_family(c, "granite") ? "shared_intermediate_size" : "intermediate_size";
    if (is_family(c, "mamba")) return config_mamba(c, k, f);
    if (!config_layers(c, k, f) || !config_int(k, "hidden_size", "n_embd", 1, MOST_WIDTH, 0, &c->hidden, f) ||
        !config_int(k, "num_attention_heads", "n_head", 1, MOST_WIDTH, 0, &c->heads, f) ||
        !config_int(k, "num_key_value_heads", NULL, 1, MOST_WIDTH, c->heads, &c->kv_heads, f) ||
        !config_int(k, "head_dim", NULL, 1, 2 * MOST_FREQUENCIES, c->hidden / c->heads, &c->head_dim, f) ||
        !config_int(k, inner, "n_inner", 1, MOST_WIDTH, gpt2 ? 4 * c->hidden : 0, &c->inner, f) ||
        !config_int(k, "vocab_size", NULL, 1, MOST_VOCABULARY, images, &c->vocabulary, f) ||
        !config_int(k, "max_position_embeddings", "n_positions", 1, MOST_POSITIONS, 2048, &c->positions, f) ||
        !config_int(k, "type_vocab_size", NULL, 0, 1024, 0, &c->types, f))
        return false;
    if (c->heads % c->kv_heads)
        return fault_set(f, "config: %d heads are no multiple of %d key heads", c->heads, c->kv_heads);
    if ((int64_t)c->heads * c->head_dim > MOST_WIDTH)
        return fault_set(f, "config: %d heads of %d are too wide", c->heads, c->head_dim);
    return true;
}

static bool read_activation(struct config *c, struct keys *k, struct fault *f)
{
    static const struct {
        const char *name;
        enum activation is;
    } all[] = {{"silu", ACTIVATION_SILU},
               {"swish", ACTIVATION_SILU},
               {"gelu", ACTIVATION_GELU},
               {"gelu_new", ACTIVATION_GELU_TANH},
               {"gelu_pytorch_tanh", ACTIVATION_GELU_TANH},
               {"quick_gelu", ACTIVATION_GELU_QUICK},
               {"relu", ACTIVATION_RELU},
               {"relu2", ACTIVATION_RELU2}};
    json_t *first = member(k, "gguf:activation", "activation_function");
    json_t *named = member(k, "hidden_activation", "mlp_hidden_act"), *act = member(k, "hidden_act", NULL);
    const char *name = json_string_value(first ? first : named ? named : act);
    /* Gemma's first files say gelu and mean the tanh form, as their authors have declared. */
    if (!strcmp(c->family, "gemma")) name = "gelu_pytorch_tanh";
    for (size_t i = 0; name && i < sizeof all / sizeof *all; i++)
        if (!strcmp(name, all[i].name)) return c->activation = all[i].is, true;
    return fault_set(f, "config: activation '%.40s' is not supported", name ? name : "none");
}

/* Which layers slide: by name, or by the rule of the family where older files have no names. */
static bool read_windows(struct config *c, struct keys *k, struct fault *f)
{
    json_t *types = member(k, "layer_types", NULL);
    bool use = true;
    int pattern, other, first = 0;
    if (config_is_hybrid(c)) return config_hybrid(c, k, f);
    if (!config_int(k, "sliding_window", NULL, 0, MOST_POSITIONS, 0, &c->window, f) ||
        !config_int(k, "_sliding_window_pattern", NULL, 1, MOST_LAYERS, is_family(c, "gemma2") ? 2 : 6,
                    &other, f) ||
        !config_int(k, "sliding_window_pattern", NULL, 1, MOST_LAYERS, other, &pattern, f) ||
        (is_family(c, "qwen") && (!config_bool(k, "use_sliding_window", false, &use, f) ||
                                  !config_int(k, "max_window_layers", NULL, 0, 1 << 20, 28, &first, f))))
        return false;
    /* So many on both sides together; as transformers does, those on one side, and the token itself. */
    if (c->bidirectional && c->window) c->window = c->window / 2 + 1;
    if (c->bidirectional && c->window == 1)
        return fault_set(f, "config: a sliding_window of 1 in both directions is not supported");
    if (types && json_array_size(types) < (size_t)c->layers)
        return fault_set(f, "config: layer_types has %zu entries for %d layers", json_array_size(types),
                         c->layers);
    bool alternate = is_family(c, "gemma2") || is_family(c, "gemma3");
    for (int l = 0; l < c->layers; l++) {
        const char *type = types ? json_string_value(json_array_get(types, (size_t)l)) : NULL;
        if (types && (!type || (strcmp(type, "sliding_attention") && strcmp(type, "full_attention"))))
            return fault_set(f, "config: layer_types: '%.40s' is not supported", type ? type : "no text");
        c->sliding[l] = type ? *type == 's' : alternate ? (l + 1) % pattern != 0 : use && l >= first;
        c->sliding[l] = c->sliding[l] && c->window > 0;
    }
    return true;
}

static bool read_scores(struct config *c, struct keys *k, struct fault *f)
{
    double scalar, cap, logit_cap, multiplier;
    bool by_layer, weighted;
    if (!config_number(k, "query_pre_attn_scalar", NULL, 0, 1e9, 0, &scalar, f) ||
        !config_number(k, "attn_logit_softcapping", NULL, 0, 1e9, 0, &cap, f) ||
        !config_number(k, "final_logit_softcapping", NULL, 0, 1e9, 0, &logit_cap, f) ||
        !config_number(k, "attention_multiplier", NULL, 0, 1e9, is_family(c, "granite"), &multiplier, f) ||
        !config_bool(k, "scale_attn_by_inverse_layer_idx", false, &by_layer, f) ||
        !config_bool(k, "scale_attn_weights", true, &weighted, f))
        return false;
    if (by_layer || !weighted)
        return fault_set(f, "config: scores that layers scale apart are not supported");
    /* A factor of keys is one of scores. */
    c->attention_scale = scalar > 0           ? (float)(1 / sqrt(scalar))
                         : c->times.keys != 1 ? c->times.keys / sqrtf((float)c->head_dim)
                                              : (float)multiplier;
    c->attention_cap = (float)cap;
    c->logit_cap = (float)logit_cap;
    return true;
}

bool config_is_end(const struct config *c, int token)
{
    for (int i = 0; i < c->end_count; i++)
        if (c->ends[i] == token) return true;
    return false;
}

void config_end(struct config *c, int token)
{
    if (token >= 0 && c->end_count < MOST_ENDS && !config_is_end(c, token)) c->ends[c->end_count++] = token;
}

static bool read_ends(struct config *c, struct keys *k, struct fault *f)
{
    json_t *v = member(k, "eos_token_id", NULL);
    size_t n = json_is_array(v) ? json_array_size(v) : v != NULL;
    if (n > MOST_ENDS / 2)
        return fault_set(f, "%s: eos_token_id has %zu tokens; %d are the most", k->what, n, MOST_ENDS / 2);
    for (size_t i = 0; i < n; i++) {
        json_t *id = json_is_array(v) ? json_array_get(v, i) : v;
        if (!json_is_integer(id) || json_integer_value(id) < 0 || json_integer_value(id) > INT32_MAX)
            return fault_set(f, "%s: eos_token_id is no token", k->what);
        config_end(c, (int)json_integer_value(id));
    }
    return true;
}

bool config_ends(struct config *c, const json_t *o, struct fault *f)
{
    struct keys k;
    if (!o) return true;
    keys_begin(&k, &generation_keys, "all", o, "generation_config.json");
    return config_done(&k, read_ends(c, &k, f), f);
}

/* By one number; GPT-2's file and GGUF call it otherwise. */
static bool read_eps(struct config *c, struct keys *k, struct fault *f)
{
    double eps;
    json_t *other = member(k, "layer_norm_eps", NULL);
    const char *name = other ? "layer_norm_eps" : "layer_norm_epsilon";
    if (!config_number(k, "rms_norm_eps", name, 1e-15, 1, 0, &eps, f)) return false;
    c->eps = (float)eps;
    return true;
}

/* Biases of attention: of all by the config; Qwen 2 has those in front of it; of GGUF what is there. */
static bool read_biases(struct config *c, struct keys *k, struct fault *f)
{
    bool all, images = c->image > 0;
    if (!config_bool(k, "attention_bias", false, &all, f) ||
        !config_bool(k, "mlp_bias", false, &c->mlp_bias, f))
        return false;
    bool before = all || (member(k, "gguf:qkv_bias", NULL) == NULL && !strcmp(c->family, "qwen2"));
    return (images || config_bool(k, "gguf:qkv_bias", before, &c->qkv_bias, f)) &&
           config_bool(k, "gguf:out_bias", all, &c->out_bias, f);
}

/* Older files of compressed-tensors call it otherwise. */
static bool read_quant(struct config *c, struct keys *k, struct fault *f)
{
    json_t *v = member(k, "quantization_config", "compression_config");
    return !v || quant_config_read(&c->quant, v, f);
}

static bool read_all(struct config *c, struct keys *k, struct fault *f)
{
    bool tied;
    if (!config_image(c, k, f) || !read_sizes(c, k, f) ||
        !config_bool(k, "tie_word_embeddings", true, &tied, f) || !read_eps(c, k, f) ||
        !read_biases(c, k, f) || !config_bool(k, "gguf:turned", false, &c->turned, f) ||
        !config_bool(k, "use_bidirectional_attention", false, &c->bidirectional, f) ||
        !config_bool(k, "gguf:unit_gains", is_family(c, "gemma") || is_family(c, "qwen3_5"), &c->unit_gains,
                     f))
        return false;
    c->tied = member(k, "tie_word_embeddings", NULL) ? tied : -1;
    return read_activation(c, k, f) && read_windows(c, k, f) && read_scores(c, k, f) && read_ends(c, k, f) &&
           config_rope(c, k, f) && read_quant(c, k, f);
}

/* One that is not known is left to family_find, which names it. */
static bool known_family(const char *family) { return key_family(&config_keys, family) != 0; }

bool config_read(struct config *c, const json_t *o, struct fault *f)
{
    struct keys k;
    json_t *tower = config_tower(o, f);
    const char *family = json_string_value(json_object_get(tower, "model_type"));
    *c = (struct config){.times = {1, 1, 1, 1, 1, 1, 1, 1, 1, 1}};
    for (int i = 0; i < SSD_PARTS; i++) c->recurrent.times[i] = 1;
    if (tower && !family) fault_set(f, "config: model_type is missing");
    else if (tower && !known_family(family))
        fault_set(f, "config: family %.40s%s is not supported", family,
                  config_has_experts(family) ? ", which has experts," : "");
    bool good = family && known_family(family);
    if (good) {
        snprintf(c->family, sizeof c->family, "%s", family);
        keys_begin(&k, &config_keys, c->family, tower, "config");
        keys_get(&k, "model_type");
        good = config_done(&k, read_all(c, &k, f), f);
    }
    json_decref(tower);
    return good;
}
