/*
 * rope.c -- the frequencies of rotary embeddings, and how checkpoints scale them for long texts.
 */
#include <math.h>
#include <string.h>

#include "config.h"

static const double turn = 6.283185307179586;

/* LLaMA 3.1: long waves are slowed by `factor`, short ones are kept, those between are mixed. */
static bool scale_llama3(struct rope *r, const json_t *o, struct fault *f)
{
    double factor, low, high, original;
    if (!config_number(o, "factor", NULL, 1, 1e6, 0, &factor, f) ||
        !config_number(o, "low_freq_factor", NULL, 1e-6, 1e6, 0, &low, f) ||
        !config_number(o, "high_freq_factor", NULL, 1e-6, 1e6, 0, &high, f) ||
        !config_number(o, "original_max_position_embeddings", NULL, 1, 1e9, 0, &original, f))
        return false;
    if (high <= low) return fault_set(f, "config: high_freq_factor %g is not above %g", high, low);
    for (int i = 0; i < r->rotary / 2; i++) {
        double w = pow(r->base, -2.0 * i / r->rotary), waves = original * w / turn;
        double kept = fmin(1, fmax(0, (waves - low) / (high - low)));
        r->frequencies[i] = (float)(kept * w + (1 - kept) * w / factor);
    }
    return true;
}

static bool scale_linear(struct rope *r, const json_t *o, struct fault *f)
{
    double factor;
    if (!config_number(o, "factor", NULL, 1, 1e6, 0, &factor, f)) return false;
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
static bool scale_yarn(struct rope *r, const json_t *o, struct fault *f)
{
    double factor, original, fast, slow, scale;
    if (!config_number(o, "factor", NULL, 1, 1e6, 0, &factor, f) ||
        !config_number(o, "original_max_position_embeddings", NULL, 1, 1e9, 0, &original, f) ||
        !config_number(o, "beta_fast", NULL, 1e-3, 1e6, 32, &fast, f) ||
        !config_number(o, "beta_slow", NULL, 1e-3, 1e6, 1, &slow, f) ||
        !config_number(o, "attention_factor", NULL, 1e-3, 1e3, 0.1 * log(factor) + 1, &scale, f))
        return false;
    if (json_object_get(o, "mscale") || json_object_get(o, "mscale_all_dim") || r->base <= 1 ||
        json_is_false(json_object_get(o, "truncate")))
        return fault_set(f, "config: yarn with mscale, without truncation, or of base 1 is not supported");
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
static bool scale_factors(struct rope *r, const json_t *o, struct fault *f)
{
    return divide(r, json_object_get(o, "factors"), r->frequencies, f);
}

/* LongRoPE, arXiv 2402.13753: other factors for texts beyond the original context. `outside` is config.json.
 * */
static bool scale_longrope(const struct config *c, struct rope *r, const json_t *o, const json_t *outside,
                           struct fault *f)
{
    const char *name = "original_max_position_embeddings";
    double factor, scale;
    const json_t *from = json_object_get(o, name) ? o : outside;
    if (!config_int(from, name, NULL, 2, 1 << 30, 0, &r->original, f)) return false;
    if (!config_number(o, "factor", NULL, 1e-6, 1e6, (double)c->positions / r->original, &factor, f))
        return false;
    scale = factor > 1 ? sqrt(1 + log(factor) / log(r->original)) : 1;
    if (!config_number(o, "attention_factor", NULL, 1e-3, 1e3, scale, &scale, f)) return false;
    r->scale = (float)scale;
    return divide(r, json_object_get(o, "short_factor"), r->frequencies, f) &&
           divide(r, json_object_get(o, "long_factor"), r->long_frequencies, f);
}

/* o is an object of rope_scaling (version 4) or rope_parameters (5), or NULL; `outside` is config.json. */
static bool read_rope(const struct config *c, struct rope *r, const json_t *o, const json_t *outside,
                      double base, double partial, struct fault *f)
{
    json_t *named = json_object_get(o, "rope_type");
    const char *type = json_string_value(named ? named : json_object_get(o, "type"));
    if (o && !json_is_object(o)) return fault_set(f, "config: the scaling of RoPE is no object");
    if (!config_number(o, "rope_theta", NULL, 1, 1e12, base, &r->base, f) ||
        !config_number(o, "partial_rotary_factor", NULL, 0.01, 1, partial, &partial, f))
        return false;
    r->rotary = (int)(c->head_dim * partial);
    r->scale = 1;
    if (r->rotary < 2 || r->rotary % 2 || r->rotary / 2 > MOST_FREQUENCIES)
        return fault_set(f, "config: %d rotated columns of a head of %d are not supported", r->rotary,
                         c->head_dim);
    r->scaled = type && strcmp(type, "default") != 0;
    if (!r->scaled) return true;
    if (!strcmp(type, "llama3")) return scale_llama3(r, o, f);
    if (!strcmp(type, "linear")) return scale_linear(r, o, f);
    if (!strcmp(type, "yarn")) return scale_yarn(r, o, f);
    if (!strcmp(type, "longrope")) return scale_longrope(c, r, o, outside, f);
    if (!strcmp(type, "factors")) return scale_factors(r, o, f);
    return fault_set(f, "config: RoPE of type '%.40s' is not supported", type);
}

bool config_rope(struct config *c, const json_t *o, struct fault *f)
{
    bool gemma3 = !strncmp(c->family, "gemma3", 6);
    json_t *both = json_object_get(o, "rope_parameters"), *full = json_object_get(both, "full_attention");
    json_t *scaling = full ? full : json_is_object(both) ? both : json_object_get(o, "rope_scaling");
    double base, local, partial;
    bool interleaved;
    if (!strcmp(c->family, "bert") || !strcmp(c->family, "gpt2") || c->image) return true;
    if (json_is_null(scaling)) scaling = NULL;
    if (!config_number(o, "rope_theta", NULL, 1, 1e12, gemma3 ? 1e6 : 1e4, &base, f) ||
        !config_number(o, "rope_local_base_freq", NULL, 1, 1e12, gemma3 ? 1e4 : base, &local, f) ||
        !config_number(o, "partial_rotary_factor", NULL, 0.01, 1, 1, &partial, f) ||
        !config_bool(o, "rope_interleaved", false, &interleaved, f) ||
        !read_rope(c, &c->rope, scaling, o, base, partial, f))
        return false;
    json_t *sliding = json_object_get(both, "sliding_attention");
    c->sliding_rope = c->rope; /* one for all, but for Gemma 3 */
    if ((gemma3 || sliding) && !read_rope(c, &c->sliding_rope, sliding, o, local, partial, f)) return false;
    c->rope.interleaved = c->sliding_rope.interleaved = interleaved;
    return true;
}
