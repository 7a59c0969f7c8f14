/*
 * quant.c -- quantization_config, as compressed-tensors, transformers, AutoGPTQ, AutoAWQ and ModelOpt have
 * it.
 */
#include <stdio.h>
#include <string.h>

#include "config.h"
#include "config_keys.h"

static bool add_rule(struct quant_config *q, const struct quant_rule *r, struct fault *f)
{
    if (q->rules == QUANT_RULES)
        return fault_set(f, "quantization_config: more than %d groups of weights", QUANT_RULES);
    q->rule[q->rules++] = *r;
    return true;
}

/* ---- compressed-tensors ---- */

/* "128x128" or [128, 128]. */
static bool read_block(const json_t *v, struct quant_rule *r, struct fault *f)
{
    int end = 0;
    const char *text = json_string_value(v);
    if (text && (sscanf(text, "%7dx%7d%n", &r->block_rows, &r->block_columns, &end) < 2 || text[end]))
        r->block_rows = 0;
    if (json_array_size(v) == 2 && json_is_integer(json_array_get(v, 0)) &&
        json_is_integer(json_array_get(v, 1))) {
        json_int_t rows = json_integer_value(json_array_get(v, 0));
        json_int_t columns = json_integer_value(json_array_get(v, 1));
        r->block_rows = rows > 0 && rows <= QUANT_MOST_GROUP ? (int)rows : 0;
        r->block_columns = columns > 0 && columns <= QUANT_MOST_GROUP ? (int)columns : 0;
    }
    return (r->block_rows > 0 && r->block_columns > 0) ||
           fault_set(f, "quantization_config: blocks of weights are no two numbers from 1 to %d",
                     QUANT_MOST_GROUP);
}

static bool read_strategy(struct keys *k, struct quant_rule *r, struct fault *f)
{
    const json_t *named = keys_get(k, "strategy"), *block = keys_get(k, "block_structure");
    const char *strategy = json_string_value(named);
    int group;
    if (!config_int(k, "group_size", NULL, -1, QUANT_MOST_GROUP, -1, &group, f)) return false;
    if (named && !strategy) return fault_set(f, "%s: strategy is no text", k->what);
    if (!strategy) strategy = group > 0 ? "group" : "channel";
    if (!strcmp(strategy, "block")) return read_block(block, r, f);
    if (block) return fault_set(f, "%s: a block_structure, and strategy '%.40s'", k->what, strategy);
    bool groups = !strcmp(strategy, "group") || !strcmp(strategy, "tensor_group");
    if (!groups && strcmp(strategy, "tensor") && strcmp(strategy, "channel"))
        return fault_set(f, "%s: strategy '%.40s' is not supported", k->what, strategy);
    if (groups && group < 1 && group != -1) return fault_set(f, "%s: group_size is %d", k->what, group);
    r->group = groups && group > 0 ? group : 0;
    return true;
}

static bool read_type(struct keys *k, struct quant_rule *r, struct fault *f)
{
    const char *type = json_string_value(keys_get(k, "type"));
    if (!config_int(k, "num_bits", NULL, 1, 64, 0, &r->bits, f)) return false;
    if (!type || (strcmp(type, "int") && strcmp(type, "float")))
        return fault_set(f, "%s: type '%.40s' is neither int nor float", k->what, type ? type : "none");
    r->floating = *type == 'f';
    return r->bits == 4 || r->bits == 8 ||
           fault_set(f, "%s: %s of %d bits is not supported: 4 and 8 are", k->what, type, r->bits);
}

static bool read_weights(struct quant_config *q, const json_t *o, const char *what, struct fault *f)
{
    struct keys k;
    struct quant_rule r = {0};
    if (!json_is_object(o)) return fault_set(f, "%s: weights are no object", what);
    keys_begin(&k, &quant_weights_keys, "all", o, what);
    bool good = read_type(&k, &r, f) && read_strategy(&k, &r, f);
    return config_done(&k, good, f) && add_rule(q, &r, f);
}

static bool read_group(struct quant_config *q, const char *name, const json_t *o, struct fault *f)
{
    struct keys k;
    char what[96];
    snprintf(what, sizeof what, "quantization_config: %.40s", name);
    if (!json_is_object(o)) return fault_set(f, "%s is no object", what);
    keys_begin(&k, &quant_group_keys, "all", o, what);
    const json_t *weights = keys_get(&k, "weights");
    return config_done(&k, !weights || read_weights(q, weights, what, f), f);
}

static bool read_groups(struct quant_config *q, struct keys *k, struct fault *f)
{
    json_t *groups = keys_get(k, "config_groups"), *sparse = keys_get(k, "sparsity_config"), *v;
    const char *name, *format = json_string_value(json_object_get(sparse, "format"));
    if (sparse &&
        (!json_is_object(sparse) || (json_object_size(sparse) && (!format || strcmp(format, "dense")))))
        return fault_set(f, "quantization_config: sparsity_config of format '%.40s' is not supported",
                         format ? format : "none");
    if (!json_is_object(groups)) return fault_set(f, "quantization_config: config_groups is no object");
    json_object_foreach(groups, name, v)
    {
        if (!read_group(q, name, v, f)) return false;
    }
    return true;
}

/* ---- Others ---- */

static bool read_fp8(struct quant_config *q, struct keys *k, struct fault *f)
{
    struct quant_rule r = {.floating = true, .bits = 8};
    const json_t *block = keys_get(k, "weight_block_size");
    return (!block || read_block(block, &r, f)) && add_rule(q, &r, f);
}

static bool read_words(struct quant_config *q, struct keys *k, struct fault *f)
{
    struct quant_rule r = {0};
    const json_t *named = keys_get(k, "checkpoint_format");
    const char *format = json_string_value(named);
    if (!config_int(k, "bits", NULL, 1, 64, 0, &r.bits, f) ||
        !config_int(k, "group_size", NULL, -1, QUANT_MOST_GROUP, -2, &r.group, f))
        return false;
    if (r.bits != 4 && (r.bits != 8 || q->method == QUANT_AWQ))
        return fault_set(f, "quantization_config: %s of %d bits is not supported: %s", k->family, r.bits,
                         q->method == QUANT_AWQ ? "4 is" : "4 and 8 are");
    if (!r.group) return fault_set(f, "quantization_config: group_size is 0");
    if (r.group < 0) r.group = 0;
    q->zeros_as_they_are = format && !strcmp(format, "gptq_v2");
    if (named && !q->zeros_as_they_are && (!format || strcmp(format, "gptq")))
        return fault_set(f, "quantization_config: checkpoint_format '%.40s' is not supported",
                         format ? format : "no text");
    return add_rule(q, &r, f);
}

static bool read_modelopt(struct quant_config *q, struct keys *k, struct fault *f)
{
    const char *name = json_string_value(keys_get(k, "quant_algo"));
    if (name && !strcmp(name, "FP8"))
        return add_rule(q, &(struct quant_rule){.floating = true, .bits = 8}, f);
    if (name && !strcmp(name, "NVFP4"))
        return add_rule(q, &(struct quant_rule){.floating = true, .bits = 4, .group = 16}, f);
    return fault_set(f, "quantization_config: quant_algo '%.40s' is not supported: FP8 and NVFP4 are",
                     name ? name : "none");
}

static const struct {
    const char *name;
    enum quant_method method;
    bool (*read)(struct quant_config *q, struct keys *k, struct fault *f);
} methods[] = {{"compressed-tensors", QUANT_COMPRESSED_TENSORS, read_groups},
               {"fp8", QUANT_FP8, read_fp8},
               {"fbgemm_fp8", QUANT_FBGEMM, read_fp8},
               {"gptq", QUANT_GPTQ, read_words},
               {"awq", QUANT_AWQ, read_words},
               {"modelopt", QUANT_MODELOPT, read_modelopt}};

bool quant_config_read(struct quant_config *q, const json_t *o, struct fault *f)
{
    struct keys k;
    const char *name = json_string_value(json_object_get(o, "quant_method"));
    *q = (struct quant_config){0};
    for (size_t i = 0; name && i < sizeof methods / sizeof *methods; i++) {
        if (strcmp(name, methods[i].name)) continue;
        q->method = methods[i].method;
        keys_begin(&k, &quant_keys, name, o, "quantization_config");
        keys_get(&k, "quant_method");
        return config_done(&k, methods[i].read(q, &k, f), f);
    }
    return fault_set(f,
                     "quantization_config: quant_method '%.40s' is not supported: compressed-tensors, fp8, "
                     "fbgemm_fp8, gptq, awq and modelopt are",
                     name ? name : "none");
}
