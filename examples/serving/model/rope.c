/*
 * rope.c -- the frequencies of rotary embeddings, and how checkpoints scale them for long texts.
 */
#include <math.h>
#include <string.h>

#include "config.h"
#include "config_keys.h"

static const double turn = 6.283185307179586;

/* LLaMA 3.1: long waves are slowed by `factor`, short ones are kept, those between are mixed. */
static bool scale_llama3(struct rope *r, struct keys *k, struct fault *f)
{
    double factor, low, high, original;
    if (!config_number(k, "factor", NULL, 1, 1e6, 0, &factor, f) ||
        !config_number(k, "low_freq_factor", NULL, 1e-6, 1e6, 0, &low, f) ||
        !config_number(k, "high_freq_factor", NULL, 1e-6, 1e6, 0, &high, f) ||
        !config_number(k, "original_max_position_embeddings", NULL, 1, 1e9, 0, &original, f))
        return false;
    if (high <= low) return fault_set(f, "config: high_freq_factor %g is not above %g", high, low);
    for (int i = 0; i < r->rotary / 2; i++) {
        double w = pow(r->base, -2.0 * i / r->rotary), waves = original * w / turn;
        double kept = fmin(1, fmax(0, (waves - low) / (high - low)));
        r->frequencies[i] = (float)(kept * w + (1 - kept) * w / factor);
    }
    return true;
}

static bool scale_linear(struct rope *r, struct keys *k, struct fault *f)
{
    double factor;
    if (!config_number(k, "factor", NULL, 1, 1e6, 0, &factor, f)) return false;
    for (int i = 0; i < r->rotary / 2; i++)
        r->frequencies[i] = (float)(pow(r->base, -2.0 * i / r->rotary) / factor);
    return true;
}

/* The frequency that turns so many times in the original context, counted from the fastest; not whole. */
static double frequency_of(const struct rope *r, double turns, double original)
{
    return r->rotary * log(original / (turns * turn)) / (2 * log(r->base));
}

/* YaRN, arXiv 2309.00071: fast frequencies are kept, slow ones divided, those between mixed by a ramp. */
static bool scale_yarn(struct rope *r, struct keys *k, struct fault *f)
{
    double factor, original, fast, slow, scale;
    if (!config_number(k, "factor", NULL, 1, 1e6, 0, &factor, f) ||
        !config_number(k, "original_max_position_embeddings", NULL, 1, 1e9, 0, &original, f) ||
        !config_number(k, "beta_fast", NULL, 1e-3, 1e6, 32, &fast, f) ||
        !config_number(k, "beta_slow", NULL, 1e-3, 1e6, 1, &slow, f) ||
        !config_number(k, "attention_factor", NULL, 1e-3, 1e3, 0.1 * log(factor) + 1, &scale, f))
        return false;
    if (r->base <= 1) return fault_set(f, "config: yarn of base 1 is not supported");
    double low = fmax(0, floor(frequency_of(r, fast, original)));
    double high = fmin(r->rotary - 1, ceil(frequency_of(r, slow, original)));
    if (high <= low) high = low + 0.001;
    for (int i = 0; i < r->rotary / 2; i++) {
        double w = pow(r->base, -2.0 * i / r->rotary), divided = fmin(1, fmax(0, (i - low) / (high - low)));
        r->frequencies[i] = (float)(divided * w / factor + (1 - divided) * w);
    }
    r->scale = (float)scale;
    return true;
}

/* A number for each frequency, which it is divided by. */
static bool divide(const struct rope *r, const json_t *all, float *to, struct fault *f)
{
    if (json_array_size(all) != (size_t)r->rotary / 2)
        return fault_set(f, "config: %zu factors for %d frequencies of RoPE", json_array_size(all),
                         r->rotary / 2);
    for (int i = 0; i < r->rotary / 2; i++) {
        double factor = json_number_value(json_array_get(all, (size_t)i));
        if (!(factor >= 1e-6 && factor <= 1e6))
            return fault_set(f, "config: factor %d of RoPE is out of range", i);
        to[i] = (float)(pow(r->base, -2.0 * i / r->rotary) / factor);
    }
    return true;
}

/* As GGUF keeps the scaling of LLaMA 3.1. */
static bool scale_factors(struct rope *r, struct keys *k, struct fault *f)
{
    return divide(r, keys_get(k, "factors"), r->frequencies, f);
}

/* The context that LongRoPE began with, which either object may say; both say the same. */
static bool original_context(struct keys *k, struct keys *outside, int *out, struct fault *f)
{
    const char *name = "original_max_position_embeddings";
    int other;
    if (!config_int(outside, name, NULL, 2, 1 << 30, 2, &other, f)) return false;
    bool both = keys_get(outside, name) && keys_get(k, name);
    if (!config_int(keys_get(k, name) ? k : outside, name, NULL, 2, 1 << 30, 0, out, f)) return false;
    return !both || other == *out ||
           fault_set(f, "config: %s is %d, and %d in the scaling of RoPE", name, other, *out);
}

/* LongRoPE, arXiv 2402.13753: other factors for texts beyond the original context. */
static bool scale_longrope(const struct config *c, struct rope *r, struct keys *k, struct keys *outside,
                           struct fault *f)
{
    double factor, scale;
    if (!original_context(k, outside, &r->original, f)) return false;
    if (!config_number(k, "factor", NULL, 1e-6, 1e6, (double)c->positions / r->original, &factor, f))
        return false;
    scale = factor > 1 ? sqrt(1 + log(factor) / log(r->original)) : 1;
    if (!config_number(k, "attention_factor", NULL, 1e-3, 1e3, scale, &scale, f)) return false;
    r->scale = (float)scale;
    return divide(r, keys_get(k, "short_factor"), r->frequencies, f) &&
           divide(r, keys_get(k, "long_factor"), r->long_frequencies, f);
}

/* Phi-3's first files call LongRoPE by other names. */
static const char *type_of(const struct config *c, const json_t *o)
{
    json_t *named = json_object_get(o, "rope_type");
    const char *type = json_string_value(named ? named : json_object_get(o, "type"));
    bool phi3 = type && !strcmp(c->family, "phi3");
    if (phi3 && (!strcmp(type, "su") || !strcmp(type, "yarn"))) return "longrope";
    return type ? type : "default";
}

static bool scale_rope(const struct config *c, struct rope *r, struct keys *k, struct keys *outside,
                       struct fault *f)
{
    const char *type = k->family;
    r->scaled = strcmp(type, "default") != 0;
    if (!r->scaled) return true;
    if (!strcmp(type, "llama3")) return scale_llama3(r, k, f);
    if (!strcmp(type, "linear")) return scale_linear(r, k, f);
    if (!strcmp(type, "yarn")) return scale_yarn(r, k, f);
    if (!strcmp(type, "longrope")) return scale_longrope(c, r, k, outside, f);
    if (!strcmp(type, "gguf:factors")) return scale_factors(r, k, f);
    return fault_set(f, "config: RoPE of type '%.40s' is not supported", type);
}

/* How many columns rotate. */
static bool read_columns(const struct config *c, struct rope *r, struct keys *k, double partial,
                         struct keys *outside, struct fault *f)
{
    if (!config_number(k, "partial_rotary_factor", NULL, 0.01, 1, partial, &partial, f) ||
        !config_int(outside, "gguf:rotary", NULL, 2, c->head_dim, (int)(c->head_dim * partial), &r->rotary,
                    f))
        return false;
    if (r->rotary < 2 || r->rotary % 2 || r->rotary / 2 > MOST_FREQUENCIES)
        return fault_set(f, "config: %d rotated columns of a head of %d are not supported", r->rotary,
                         c->head_dim);
    return true;
}

static bool read_members(const struct config *c, struct rope *r, struct keys *k, struct keys *outside,
                         double base, double partial, struct fault *f)
{
    double more;
    keys_get(k, "rope_type");
    keys_get(k, "type");
    r->scale = 1;
    if (!config_number(k, "rope_theta", NULL, 1, 1e12, base, &r->base, f) ||
        !read_columns(c, r, k, partial, outside, f) || !scale_rope(c, r, k, outside, f) ||
        !config_number(outside, "gguf:rope_scale", NULL, 1e-3, 1e3, 1, &more, f))
        return false;
    r->scale = (float)((double)r->scale * more);
    return true;
}

/* o is an object of rope_scaling (version 4) or rope_parameters (5), or NULL; `outside` is config.json. */
static bool read_rope(const struct config *c, struct rope *r, const json_t *o, struct keys *outside,
                      double base, double partial, struct fault *f)
{
    struct keys k;
    if (o && !json_is_object(o)) return fault_set(f, "config: the scaling of RoPE is no object");
    const char *type = type_of(c, o);
    if (!key_family(&rope_keys, type))
        return fault_set(f, "config: RoPE of type '%.40s' is not supported", type);
    keys_begin(&k, &rope_keys, type, o, "config: RoPE");
    return config_done(&k, read_members(c, r, &k, outside, base, partial, f), f);
}

/* Objects for both kinds of layers have no other members than these. */
static bool split_rope(const json_t *both, json_t **full, json_t **sliding, struct fault *f)
{
    *full = json_object_get(both, "full_attention");
    *sliding = json_object_get(both, "sliding_attention");
    const char *name;
    json_t *v;
    json_object_foreach((json_t *)(uintptr_t)both, name, v)
    {
        if ((*full || *sliding) && v != *full && v != *sliding)
            return fault_set(f, "config: key 'rope_parameters.%.60s' is not known beside those of layers",
                             name);
    }
    return true;
}

bool config_rope(struct config *c, struct keys *k, struct fault *f)
{
    bool gemma3 = !strncmp(c->family, "gemma3", 6);
    json_t *both = keys_get(k, "rope_parameters"), *old = keys_get(k, "rope_scaling"), *full, *sliding;
    double base, local, partial;
    bool interleaved;
    if (!strcmp(c->family, "bert") || !strcmp(c->family, "gpt2") || c->image ||
        !strncmp(c->family, "mamba", 5) || c->no_rope)
        return true;
    if (both && old && !json_equal(both, old))
        return fault_set(f, "config: rope_scaling and rope_parameters say different things");
    if (!split_rope(both, &full, &sliding, f)) return false;
    json_t *scaling = full ? full : both && !sliding ? both : old;
    if (!config_number(k, "rope_theta", NULL, 1, 1e12, gemma3 ? 1e6 : 1e4, &base, f) ||
        !config_number(k, "rope_local_base_freq", NULL, 1, 1e12, gemma3 ? 1e4 : base, &local, f) ||
        !config_number(k, "partial_rotary_factor", NULL, 0.01, 1, 1, &partial, f) ||
        !config_bool(k, "gguf:rope_interleaved", false, &interleaved, f) ||
        !read_rope(c, &c->rope, scaling, k, base, partial, f))
        return false;
    c->sliding_rope = c->rope; /* one for all, but for Gemma 3 */
    if ((gemma3 || sliding) && !read_rope(c, &c->sliding_rope, sliding, k, local, partial, f)) return false;
    c->rope.interleaved = c->sliding_rope.interleaved = interleaved;
    return true;
}
