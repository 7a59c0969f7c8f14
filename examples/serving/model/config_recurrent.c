/*
 * config_recurrent.c -- layers that carry a state: which ones do; the sizes of Mamba's, of Mamba-2's by the
 * names that families have for them, and of the delta rule; what values are multiplied by.
 */
#include <math.h>
#include <string.h>

#include "config.h"
#include "config_keys.h"

enum { MOST_COLUMNS = 1 << 20, MOST_TAPS = 16, MOST_STATES = 256, MOST_VOCABULARY = 1 << 22 };

/* 2 x hidden_size, but by `expand`; a file that says the product as well must say the same. */
static bool read_inner(struct config *c, struct keys *k, const char *name, struct fault *f)
{
    struct recurrent *r = &c->recurrent;
    double expand;
    int said;
    if (!config_number(k, name, NULL, 0.01, 64, 2, &expand, f)) return false;
    double inner = floor(expand * c->hidden);
    if (inner < 1 || inner > MOST_COLUMNS)
        return fault_set(f, "config: expand %g of %d columns is not supported", expand, c->hidden);
    r->inner = (int)inner;
    bool told = !strncmp(c->family, "mamba", 5);
    if (!told) return true;
    if (!config_int(k, "intermediate_size", NULL, 1, MOST_COLUMNS, r->inner, &said, f)) return false;
    return said == r->inner || fault_set(f, "config: intermediate_size %d, where expand %g of %d is %d", said,
                                         expand, c->hidden, r->inner);
}

/* "auto": a sixteenth of the columns. */
static bool read_rank(struct config *c, struct keys *k, struct fault *f)
{
    int usual = (c->hidden + 15) / 16;
    const char *word = json_string_value(keys_get(k, "time_step_rank"));
    if (word && !strcmp(word, "auto")) return c->recurrent.rank = usual, true;
    return config_int(k, "time_step_rank", NULL, 1, MOST_COLUMNS, usual, &c->recurrent.rank, f);
}

static bool is_infinity(const json_t *v)
{
    const char *word = json_string_value(json_object_get(v, "__float__"));
    return (word && !strcmp(word, "Infinity")) || json_number_value(v) >= 1e300;
}

/* Softplus is above 0 anyhow. */
static bool read_limits(struct keys *k, struct fault *f)
{
    const json_t *both = keys_get(k, "time_step_limit"), *least = json_array_get(both, 0);
    if (!both || (json_array_size(both) == 2 && json_is_number(least) && json_number_value(least) == 0 &&
                  is_infinity(json_array_get(both, 1))))
        return true;
    return fault_set(f, "config: a time_step_limit but 0 to infinity is not supported");
}

/* What the sizes of Mamba-2's layers are called. */
struct scan_names {
    const char *family, *heads, *head, *groups, *states, *taps, *taps_bias, *bias, *expand;
    int usual_groups, usual_states;
};
static const struct scan_names scan_names[] = {
    {"mamba2", "num_heads", "head_dim", "n_groups", "state_size", "conv_kernel", "use_conv_bias", "use_bias",
     "expand", 8, 128},
    {"nemotron_h", "mamba_num_heads", "mamba_head_dim", "n_groups", "ssm_state_size", "conv_kernel",
     "use_conv_bias", "use_bias", NULL, 8, 128},
    {"granitemoehybrid", "mamba_n_heads", "mamba_d_head", "mamba_n_groups", "mamba_d_state", "mamba_d_conv",
     "mamba_conv_bias", "mamba_proj_bias", "mamba_expand", 1, 256},
    {"falcon_h1", "mamba_n_heads", "mamba_d_head", "mamba_n_groups", "mamba_d_state", "mamba_d_conv",
     "mamba_conv_bias", "mamba_proj_bias", "mamba_expand", 1, 256}};

static const struct scan_names *names_of(const struct config *c)
{
    for (size_t i = 0; i < sizeof scan_names / sizeof *scan_names; i++)
        if (!strcmp(scan_names[i].family, c->family)) return &scan_names[i];
    return NULL;
}

/* Columns of the scan: as many as its heads have, or a multiple of the others; a file that says both must say
 * the same. */
static bool read_columns(struct config *c, struct keys *k, const struct scan_names *n, struct fault *f)
{
    struct recurrent *r = &c->recurrent;
    const char *word = json_string_value(keys_get(k, n->head));
    int head, said = 0;
    if (!config_int(k, n->heads, NULL, 1, MOST_COLUMNS, 128, &r->heads, f)) return false;
    if (n->expand && !config_int(k, "mamba_d_ssm", NULL, 1, MOST_COLUMNS, 1 << 21, &said, f)) return false;
    if (said == 1 << 21 && !read_inner(c, k, n->expand, f)) return false;
    if (n->expand && said != 1 << 21) r->inner = said;
    bool automatic = n->expand && word && !strcmp(word, "auto");
    if (automatic) head = r->inner / r->heads;
    else if (!config_int(k, n->head, NULL, 1, MOST_COLUMNS, 64, &head, f)) return false;
    if (!n->expand && (int64_t)r->heads * head <= MOST_COLUMNS) r->inner = r->heads * head;
    return (int64_t)r->heads * head == r->inner ||
           fault_set(f, "config: %d heads of %d, where the scan has %d columns", r->heads, head, r->inner);
}

static bool read_scan(struct config *c, struct keys *k, struct fault *f)
{
    struct recurrent *r = &c->recurrent;
    const struct scan_names *n = names_of(c);
    if (!read_columns(c, k, n, f) ||
        !config_int(k, n->groups, NULL, 1, MOST_COLUMNS, n->usual_groups, &r->groups, f) ||
        !config_int(k, n->states, NULL, 1, MOST_STATES, n->usual_states, &r->states, f) ||
        !config_int(k, n->taps, NULL, 2, MOST_TAPS, 4, &r->taps, f) ||
        !config_bool(k, n->taps_bias, true, &r->taps_bias, f) ||
        !config_bool(k, n->bias, false, &r->bias, f) ||
        !config_bool(k, "projectors_bias", r->bias, &r->out_bias, f) || !read_limits(k, f))
        return false;
    return r->heads % r->groups == 0 ||
           fault_set(f, "config: %d heads are no multiple of %d groups", r->heads, r->groups);
}

bool config_mamba(struct config *c, struct keys *k, struct fault *f)
{
    struct recurrent *r = &c->recurrent;
    c->heads = c->kv_heads = c->head_dim = 1; /* there is no attention */
    c->positions = 1 << 23;
    for (int l = 0; l < MOST_LAYERS; l++) c->carries[l] = true;
    if (!config_int(k, "num_hidden_layers", NULL, 1, MOST_LAYERS, 0, &c->layers, f) ||
        !config_int(k, "hidden_size", NULL, 1, MOST_COLUMNS, 0, &c->hidden, f) ||
        !config_int(k, "vocab_size", NULL, 1, MOST_VOCABULARY, 0, &c->vocabulary, f) ||
        !config_bool(k, "residual_in_fp32", true, &c->wide_residual, f))
        return false;
    if (names_of(c)) return read_scan(c, k, f);
    if (!config_int(k, "state_size", NULL, 1, MOST_STATES, 16, &r->states, f) ||
        !config_int(k, "conv_kernel", NULL, 2, MOST_TAPS, 4, &r->taps, f) ||
        !config_bool(k, "use_bias", false, &r->bias, f) ||
        !config_bool(k, "use_conv_bias", true, &r->taps_bias, f) || !read_inner(c, k, "expand", f))
        return false;
    r->heads = r->inner;
    r->groups = 1;
    return read_rank(c, k, f);
}

static bool read_delta(struct config *c, struct keys *k, struct fault *f)
{
    struct recurrent *r = &c->recurrent;
    int columns;
    if (!config_int(k, "linear_num_value_heads", NULL, 1, MOST_COLUMNS, 0, &r->heads, f) ||
        !config_int(k, "linear_num_key_heads", NULL, 1, MOST_COLUMNS, 0, &r->groups, f) ||
        !config_int(k, "linear_value_head_dim", NULL, 1, MOST_COLUMNS, 0, &columns, f) ||
        !config_int(k, "linear_key_head_dim", NULL, 1, MOST_STATES, 0, &r->states, f) ||
        !config_int(k, "linear_conv_kernel_dim", NULL, 2, MOST_TAPS, 0, &r->taps, f))
        return false;
    if (r->heads % r->groups)
        return fault_set(f, "config: %d heads of values are no multiple of %d of keys", r->heads, r->groups);
    if ((int64_t)r->heads * columns > MOST_COLUMNS || (int64_t)r->groups * r->states > MOST_COLUMNS)
        return fault_set(f, "config: %d heads of %d and %d of %d are too wide", r->heads, columns, r->groups,
                         r->states);
    r->inner = r->heads * columns;
    return true;
}

/* ---- Families that attend, too ---- */

static bool is(const struct config *c, const char *family) { return !strcmp(c->family, family); }

bool config_is_hybrid(const struct config *c)
{
    return is(c, "qwen3_5_text") || (names_of(c) && !is(c, "mamba2"));
}

/* What a layer does, by any of its names; one that is an MLP alone does neither. */
static bool read_kind(struct config *c, int l, const char *type, struct fault *f)
{
    bool attends =
        type && (!strcmp(type, "full_attention") || !strcmp(type, "attention") || !strcmp(type, "*"));
    bool carries =
        type && (!strcmp(type, "linear_attention") || !strcmp(type, "mamba") || !strcmp(type, "M"));
    bool neither = type && is(c, "nemotron_h") && (!strcmp(type, "mlp") || !strcmp(type, "-"));
    bool experts = type && is(c, "nemotron_h") && (!strcmp(type, "moe") || !strcmp(type, "E"));
    c->keeps[l] = attends;
    c->carries[l] = carries;
    if (experts) return fault_set(f, "config: layer %d has experts, which are not supported", l);
    return attends || carries || neither ||
           fault_set(f, "config: layer_types: '%.40s' is not supported", type ? type : "no text");
}

/* Nemotron's: a letter for each. */
static bool read_pattern(struct config *c, const char *pattern, struct fault *f)
{
    size_t n = strlen(pattern);
    if (n < 1 || n > MOST_LAYERS)
        return fault_set(f, "config: hybrid_override_pattern has %zu layers; 1 to %d are supported", n,
                         MOST_LAYERS);
    c->layers = (int)n;
    for (int l = 0; l < c->layers; l++)
        if (!read_kind(c, l, (const char[]){pattern[l], 0}, f)) return false;
    return true;
}

static bool read_types(struct config *c, const json_t *types, struct fault *f)
{
    for (int l = 0; l < c->layers; l++)
        if (!read_kind(c, l, json_string_value(json_array_get(types, (size_t)l)), f)) return false;
    return true;
}

/* By name; or each so-manieth attends; or none does; Falcon-H1's all do both. */
bool config_layers(struct config *c, struct keys *k, struct fault *f)
{
    json_t *types = is(c, "nemotron_h") ? keys_get(k, "layers_block_type") : keys_get(k, "layer_types");
    json_t *letters = keys_get(k, "hybrid_override_pattern");
    const char *pattern = json_string_value(letters);
    int interval, usual = types && is(c, "nemotron_h") ? (int)json_array_size(types) : 0;
    bool delta = is(c, "qwen3_5_text"), falcon = is(c, "falcon_h1");
    if (letters && !pattern) return fault_set(f, "config: hybrid_override_pattern is no text");
    if (!types && pattern && !read_pattern(c, pattern, f)) return false;
    int found = types ? usual : c->layers;
    if (!config_int(k, "num_hidden_layers", "n_layer", 1, MOST_LAYERS, found, &c->layers, f) ||
        !config_int(k, "full_attention_interval", NULL, 1, MOST_LAYERS, 4, &interval, f))
        return false;
    if (found && c->layers != found)
        return fault_set(f, "config: num_hidden_layers %d, where the layers' types are %d", c->layers, found);
    if (!config_is_hybrid(c)) types = NULL;
    if (types && json_array_size(types) != (size_t)c->layers)
        return fault_set(f, "config: layer_types has %zu entries for %d layers", json_array_size(types),
                         c->layers);
    if (types) return read_types(c, types, f);
    for (int l = 0; l < c->layers && !pattern; l++) {
        c->keeps[l] = delta ? (l + 1) % interval == 0 : !is(c, "granitemoehybrid");
        c->carries[l] = falcon || (config_is_hybrid(c) && !c->keeps[l]);
    }
    return true;
}

/* ---- Multipliers ---- */

static bool read_times(struct keys *k, const char *name, float *to, struct fault *f)
{
    double x;
    if (!config_number(k, name, NULL, 1e-9, 1e9, 1, &x, f)) return false;
    *to = (float)x;
    return true;
}

/* A list of so many numbers. */
static bool read_list(struct keys *k, const char *name, float *to, int n, struct fault *f)
{
    json_t *all = keys_get(k, name);
    if (!all) return true;
    bool good = json_array_size(all) == (size_t)n;
    for (int i = 0; good && i < n; i++) {
        json_t *one = json_array_get(all, (size_t)i);
        good = json_is_number(one) && fabs(json_number_value(one)) <= 1e9;
        to[i] = (float)json_number_value(one);
    }
    return good || fault_set(f, "config: %s is no list of %d numbers", name, n);
}

static bool read_multipliers(struct config *c, struct keys *k, struct fault *f)
{
    struct multipliers *t = &c->times;
    double divisor;
    float mlp[2] = {1, 1};
    if (!read_times(k, "embedding_multiplier", &t->embedding, f) ||
        !read_times(k, "residual_multiplier", &t->residual, f) ||
        !read_times(k, "lm_head_multiplier", &t->logits, f) ||
        !read_times(k, "key_multiplier", &t->keys, f) ||
        !read_times(k, "attention_in_multiplier", &t->attention_in, f) ||
        !read_times(k, "attention_out_multiplier", &t->attention_out, f) ||
        !read_times(k, "ssm_in_multiplier", &t->scan_in, f) ||
        !read_times(k, "ssm_out_multiplier", &t->scan_out, f) ||
        !config_number(k, "logits_scaling", NULL, 1e-9, 1e9, 1, &divisor, f) ||
        !read_list(k, "mlp_multipliers", mlp, 2, f) ||
        !read_list(k, "ssm_multipliers", c->recurrent.times, SSD_PARTS, f))
        return false;
    t->gate = mlp[0];
    t->down = mlp[1];
    t->logits = (float)((double)t->logits / divisor);
    return true;
}

static bool read_norm(struct config *c, struct keys *k, struct fault *f)
{
    bool there, first;
    if (!config_bool(k, "mamba_rms_norm", !is(c, "falcon_h1"), &there, f) ||
        !config_bool(k, "mamba_norm_before_gate", is(c, "falcon_h1"), &first, f))
        return false;
    c->recurrent.norm = !there ? NORM_NONE : first ? NORM_THEN_GATE : GATE_THEN_NORM;
    return true;
}

/* Granite's may have none, and Nemotron's has none. */
static bool read_position(struct config *c, struct keys *k, struct fault *f)
{
    json_t *v = keys_get(k, "position_embedding_type");
    const char *word = json_string_value(v);
    c->no_rope = is(c, "nemotron_h") || (is(c, "granitemoehybrid") && (!word || !strcmp(word, "nope")));
    return !v || (word && (!strcmp(word, "nope") || !strcmp(word, "rope"))) ||
           fault_set(f, "config: position_embedding_type is neither nope nor rope");
}

bool config_hybrid(struct config *c, struct keys *k, struct fault *f)
{
    if (is(c, "qwen3_5_text")) return read_delta(c, k, f);
    return read_scan(c, k, f) && read_norm(c, k, f) && read_multipliers(c, k, f) && read_position(c, k, f) &&
           config_bool(k, "residual_in_fp32", false, &c->wide_residual, f);
}

bool config_has_experts(const char *family)
{
    static const char *const all[] = {"qwen2_moe",        "qwen3_moe",  "qwen3_next", "qwen3_5_moe",
                                      "qwen3_5_moe_text", "granitemoe", "mixtral",    "deepseek_v2",
                                      "deepseek_v3",      "gpt_oss",    "olmoe",      "jamba"};
    for (size_t i = 0; i < sizeof all / sizeof *all; i++)
        if (!strcmp(all[i], family)) return true;
    return false;
}

/* The rule of Qwen 3.5 and the scan of Mamba-2 convolve what they read besides, too. */
double config_state_bytes(const struct config *c, double element)
{
    const struct recurrent *r = &c->recurrent;
    bool alone = !strcmp(c->family, "mamba");
    double mixed = r->inner + (alone ? 0 : 2.0 * r->groups * r->states), all = 0;
    for (int l = 0; l < c->layers; l++)
        if (c->carries[l]) all += (r->taps - 1) * mixed * element + 4.0 * r->inner * r->states;
    return all;
}

double config_key_columns(const struct config *c)
{
    double columns = 0;
    for (int l = 0; l < c->layers; l++)
        if (c->keeps[l]) columns += (double)c->kv_heads * c->head_dim;
    return columns;
}
