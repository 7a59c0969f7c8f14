/*
 * adapter.c -- PEFT's files, and what they add to a product. Parts of one product have one A, the rows of all
 * of them, and one B, on whose diagonal theirs are, times s.
 */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "adapter.h"
#include "regular.h"

/* ---- adapter_config.json ---- */

/* Says what the tensors say, or how they were learned. */
static const char *const ignored[] = {"r",
                                      "rank_pattern",
                                      "target_modules",
                                      "exclude_modules",
                                      "layers_to_transform",
                                      "layers_pattern",
                                      "base_model_name_or_path",
                                      "revision",
                                      "task_type",
                                      "inference_mode",
                                      "auto_mapping",
                                      "peft_version",
                                      "lora_dropout",
                                      "init_lora_weights",
                                      "loftq_config",
                                      "eva_config",
                                      "corda_config",
                                      "lora_ga_config",
                                      "runtime_config",
                                      "megatron_config",
                                      "megatron_core",
                                      "qalora_group_size",
                                      "fan_in_fan_out"};

/* null, false, "none" and what is empty ask for nothing. */
static bool asks_nothing(const json_t *v)
{
    const char *word = json_string_value(v);
    return json_is_null(v) || json_is_false(v) || (json_is_array(v) && !json_array_size(v)) ||
           (json_is_object(v) && !json_object_size(v)) || (word && !strcmp(word, "none"));
}

static bool is_ignored(const char *key)
{
    for (size_t i = 0; i < sizeof ignored / sizeof *ignored; i++)
        if (!strcmp(key, ignored[i])) return true;
    return false;
}

static bool read_key(struct checkpoint *c, const char *key, const json_t *v, struct fault *f)
{
    const char *word = json_string_value(v);
    if (is_ignored(key)) return true;
    if (!strcmp(key, "peft_type"))
        return (word && !strcmp(word, "LORA")) ||
               fault_set(f, "adapter_config.json: peft_type is %.40s; LORA is supported",
                         word ? word : "no text");
    if (!strcmp(key, "lora_alpha")) return c->adapter_alpha = json_number_value(v), true;
    if (!strcmp(key, "use_rslora")) return c->adapter_by_root = json_is_true(v), true;
    return asks_nothing(v) || fault_set(f, "adapter_config.json: %.60s is not supported", key);
}

static bool read_config(struct checkpoint *c, const char *path, struct fault *f)
{
    const char *key;
    json_t *v, *o = checkpoint_object(path, f);
    bool good = o != NULL;
    c->adapter_alpha = 0;
    json_object_foreach(o, key, v) good = good && read_key(c, key, v, f);
    if (good && !(c->adapter_alpha > 0 && c->adapter_alpha < 1e6))
        good = fault_set(f, "%.200s: lora_alpha is %g; it is a number above 0", path, c->adapter_alpha);
    json_decref(o);
    return good;
}

/* ---- adapter_model.safetensors ---- */

/* Tensors that came last are called by what they stand beside. */
static bool rename_all(struct checkpoint *c, int first, struct fault *f)
{
    static const char root[] = "base_model.model.";
    for (int i = first; i < c->count; i++) {
        struct stored_tensor *t = &c->tensor[i];
        char *whole = NULL;
        const char *name = t->name;
        if (!strncmp(name, root, sizeof root - 1)) name += sizeof root - 1;
        if (asprintf(&whole, "adapter.%s", name) < 0) return fault_set(f, "%.100s: out of memory", t->name);
        free(t->stored);
        t->stored = t->name;
        t->name = whole;
    }
    return true;
}

bool adapter_read(struct checkpoint *c, const char *folder, struct fault *f)
{
    char path[2][4096];
    struct mapped_file map;
    int first = c->count;
    if (snprintf(path[0], sizeof path[0], "%s/adapter_config.json", folder) >= (int)sizeof path[0] ||
        snprintf(path[1], sizeof path[1], "%s/adapter_model.safetensors", folder) >= (int)sizeof path[1])
        return fault_set(f, "%.100s: the path is too long", folder);
    if (!regular_there(path[0])) return fault_set(f, "%.200s: there is no adapter_config.json in it", folder);
    c->adapted = true;
    return read_config(c, path[0], f) && checkpoint_map(c, path[1], &map, f) &&
           safetensors_read(c, "adapter_model.safetensors", &map, f) && rename_all(c, first, f) &&
           checkpoint_sort(c, f);
}

/* ---- Products ---- */

struct pair {
    const struct stored_tensor *a, *b; /* or NULL */
};

/* PEFT's names begin with the class's own root, which a checkpoint may lack. */
static const struct stored_tensor *half(struct build *b, const char *part, const char *end)
{
    char name[256];
    const char *inner = b->prefix + strlen(b->root);
    snprintf(name, sizeof name, "adapter.%s%s%s", b->prefix, part, end);
    const struct stored_tensor *t = checkpoint_use(b->from, name);
    if (t) return t;
    snprintf(name, sizeof name, "adapter.model.%s%s%s", inner, part, end);
    return checkpoint_use(b->from, name);
}

static bool is_matrix(struct build *b, const struct stored_tensor *t, int64_t rows, int64_t columns)
{
    if (!t->dtype)
        return fault_set(b->fault, "tensor %.150s: %s is not supported: F32, F16 or BF16 are", t->stored,
                         t->type);
    if (t->rank == 2 && t->dims[0] == rows && t->dims[1] == columns) return true;
    return fault_set(b->fault, "tensor %.120s: rank %d and %lld x %lld, where its product wants %lld x %lld",
                     t->stored, t->rank, t->rank ? (long long)t->dims[0] : 1,
                     t->rank > 1 ? (long long)t->dims[1] : 1, (long long)rows, (long long)columns);
}

static bool find_pair(struct build *b, const struct part *part, int64_t columns, struct pair *out)
{
    *out = (struct pair){half(b, part->name, ".lora_A.weight"), half(b, part->name, ".lora_B.weight")};
    if (!out->a && !out->b) return true;
    if (!out->a || !out->b)
        return fault_set(b->fault, "tensor %.120s: it has no %s beside it",
                         (out->a ? out->a : out->b)->stored, out->a ? "lora_B" : "lora_A");
    int64_t r = out->a->rank ? out->a->dims[0] : 0;
    if (r < 1) return fault_set(b->fault, "tensor %.150s: it has no rows", out->a->stored);
    return is_matrix(b, out->a, r, columns) && is_matrix(b, out->b, part->rows, r);
}

static float factor_of(const struct checkpoint *c, int64_t r)
{
    return (float)(c->adapter_alpha / (c->adapter_by_root ? sqrt((double)r) : (double)r));
}

static coda_value leaf(struct build *b, struct weight *w, const char *part, const char *end, int64_t rows,
                       int64_t columns)
{
    char name[200];
    snprintf(name, sizeof name, "%s%s%s", b->prefix, part, end);
    const struct weight *known = weights_find(b->weights, name);
    w->columns = columns;
    return known ? known->value : build_leaf(b, w, name, rows, columns);
}

coda_value adapter_add(struct build *b, coda_value x, coda_value y, const struct part *parts, int n,
                       int64_t columns)
{
    struct weight down = {.dtype = b->dtype}, up = {.dtype = b->dtype, .kind = WEIGHT_DIAGONAL, .parts = n};
    int64_t inner = 0, rows = 0;
    if (b->failed) return CODA_NONE;
    for (int i = 0; i < n; rows += parts[i++].rows) {
        struct pair p;
        if (!find_pair(b, &parts[i], columns, &p)) return build_fail(b);
        up.part[i] = p.b, up.rows[i] = parts[i].rows;
        if (!p.a) continue;
        up.times[i] = factor_of(b->from, p.a->dims[0]);
        down.part[down.parts++] = p.a, inner += p.a->dims[0];
    }
    if (!inner) return y;
    coda_value a = leaf(b, &down, parts[0].name, ".lora_A.weight", inner, columns);
    coda_value of = leaf(b, &up, parts[0].name, ".lora_B.weight", rows, inner);
    return coda_add(b->g, y, coda_matmul(b->g, coda_matmul(b->g, x, a), of));
}
