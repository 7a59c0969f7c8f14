/*
 * config_recurrent.c -- the sizes of layers that carry a state: Mamba's and Mamba-2's.
 */
#include <math.h>
#include <string.h>

#include "config.h"
#include "config_keys.h"

enum { MOST_COLUMNS = 1 << 20, MOST_TAPS = 16, MOST_STATES = 256, MOST_VOCABULARY = 1 << 22 };

/* 2 x hidden_size, but by `expand`; a file that says the product as well must say the same. */
static bool read_inner(struct config *c, struct keys *k, struct fault *f)
{
    struct recurrent *r = &c->recurrent;
    double expand;
    int said;
    if (!config_number(k, "expand", NULL, 0.01, 64, 2, &expand, f)) return false;
    double inner = floor(expand * c->hidden);
    if (inner < 1 || inner > MOST_COLUMNS)
        return fault_set(f, "config: expand %g of %d columns is not supported", expand, c->hidden);
    r->inner = (int)inner;
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

static bool read_heads(struct config *c, struct keys *k, struct fault *f)
{
    struct recurrent *r = &c->recurrent;
    int columns;
    if (!config_int(k, "num_heads", NULL, 1, MOST_COLUMNS, 128, &r->heads, f) ||
        !config_int(k, "head_dim", NULL, 1, MOST_COLUMNS, 64, &columns, f) ||
        !config_int(k, "n_groups", NULL, 1, MOST_COLUMNS, 8, &r->groups, f) || !read_limits(k, f))
        return false;
    if ((int64_t)r->heads * columns != r->inner)
        return fault_set(f, "config: %d heads of %d, where the scan has %d columns", r->heads, columns,
                         r->inner);
    return r->heads % r->groups == 0 ||
           fault_set(f, "config: %d heads are no multiple of %d groups", r->heads, r->groups);
}

bool config_mamba(struct config *c, struct keys *k, struct fault *f)
{
    struct recurrent *r = &c->recurrent;
    bool second = !strcmp(c->family, "mamba2");
    c->heads = c->kv_heads = c->head_dim = 1; /* there is no attention */
    c->positions = 1 << 23;
    if (!config_int(k, "num_hidden_layers", NULL, 1, MOST_LAYERS, 0, &c->layers, f) ||
        !config_int(k, "hidden_size", NULL, 1, MOST_COLUMNS, 0, &c->hidden, f) ||
        !config_int(k, "vocab_size", NULL, 1, MOST_VOCABULARY, 0, &c->vocabulary, f) ||
        !config_int(k, "state_size", NULL, 1, MOST_STATES, second ? 128 : 16, &r->states, f) ||
        !config_int(k, "conv_kernel", NULL, 2, MOST_TAPS, 4, &r->taps, f) ||
        !config_bool(k, "use_bias", false, &r->bias, f) ||
        !config_bool(k, "use_conv_bias", true, &r->taps_bias, f) ||
        !config_bool(k, "residual_in_fp32", true, &c->wide_residual, f) || !read_inner(c, k, f))
        return false;
    r->heads = r->inner;
    r->groups = 1;
    return second ? read_heads(c, k, f) : read_rank(c, k, f);
}
