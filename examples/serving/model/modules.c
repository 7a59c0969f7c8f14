/*
 * modules.c -- modules.json of sentence-transformers, versions 2 to 6: a transformer, a pooling, any dense
 * layers, a normalisation.
 */
#include <limits.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "config.h"
#include "config_keys.h"
#include "modules.h"
#include "regular.h"

/* A member that is a text, or "". */
static const char *text_of(struct keys *k, const char *name)
{
    const char *s = json_string_value(keys_get(k, name));
    return s ? s : "";
}

/* "torch.nn.modules.activation.Tanh" is "Tanh". */
static const char *last_name(const char *s)
{
    const char *dot = strrchr(s, '.');
    return dot ? dot + 1 : s;
}

static json_t *config_in(const char *folder, const char *path, struct fault *f)
{
    char whole[PATH_MAX];
    if (snprintf(whole, sizeof whole, "%s/%s/config.json", folder, path) >= PATH_MAX)
        return fault_set(f, "%s: the path is too long", folder), NULL;
    return checkpoint_object(whole, f);
}

/* Version 6 names the mode, older ones have a flag for each. */
static bool read_pooling(struct modules *m, struct keys *k, struct fault *f)
{
    static const struct {
        const char *name, *flag;
        enum pooling is;
    } all[] = {{"mean", "pooling_mode_mean_tokens", POOLING_MEAN},
               {"cls", "pooling_mode_cls_token", POOLING_FIRST},
               {"lasttoken", "pooling_mode_lasttoken", POOLING_LAST},
               {"max", "pooling_mode_max_tokens", POOLING_OF_FILES},
               {"mean_sqrt_len_tokens", "pooling_mode_mean_sqrt_len_tokens", POOLING_OF_FILES},
               {"weightedmean", "pooling_mode_weightedmean_tokens", POOLING_OF_FILES}};
    const char *named = text_of(k, "pooling_mode"), *other = named;
    int count = 0;
    for (size_t i = 0; i < sizeof all / sizeof *all; i++) {
        bool flag = json_is_true(keys_get(k, all[i].flag));
        if (*named ? strcmp(named, all[i].name) : !flag) continue;
        m->pooling = all[i].is;
        other = all[i].name;
        count++;
    }
    if (count == 1 && m->pooling != POOLING_OF_FILES) return true;
    return fault_set(f, "modules: pooling '%.40s' is not supported", count > 1 ? "of two modes" : other);
}

static bool read_dense(struct modules *m, struct keys *k, const char *path, int *width, struct fault *f)
{
    struct dense *d = &m->dense[m->dense_count];
    const char *act = last_name(text_of(k, "activation_function")), *from = text_of(k, "module_input_name");
    if (m->dense_count == MOST_DENSE)
        return fault_set(f, "modules: %d dense layers are the most", MOST_DENSE);
    if (!config_int(k, "in_features", NULL, *width, *width, 0, &d->in, f) ||
        !config_int(k, "out_features", NULL, 1, 1 << 20, 0, &d->out, f) ||
        !config_bool(k, "bias", true, &d->bias, f))
        return false;
    d->tanh = !strcmp(act, "Tanh");
    if (!d->tanh && strcmp(act, "Identity"))
        return fault_set(f, "modules: %s: activation '%.40s' is not supported", path, act);
    if (*from && strcmp(from, "sentence_embedding"))
        return fault_set(f, "modules: %s: a dense layer of '%.40s' is not supported", path, from);
    if (snprintf(d->path, sizeof d->path, "%s", path) >= (int)sizeof d->path)
        return fault_set(f, "modules: the path '%.40s' is too long", path);
    *width = d->out;
    m->dense_count++;
    return true;
}

/* The file of a module, by its row of the table. */
static bool read_settings(struct modules *m, struct checkpoint *c, const char *folder, const char *path,
                          const char *kind, int *width, struct fault *f)
{
    bool dense = !strcmp(kind, "dense"), pooling = !strcmp(kind, "pooling");
    json_t *o = config_in(folder, path, f);
    struct keys k;
    if (!o) return false;
    keys_begin(&k, &modules_keys, kind, o, path);
    bool good = dense     ? read_dense(m, &k, path, width, f) && checkpoint_add_part(c, folder, path, f)
                : pooling ? read_pooling(m, &k, f)
                          : true;
    good = config_done(&k, good, f);
    json_decref(o);
    return good;
}

static bool has_settings(const char *folder, const char *path)
{
    char whole[PATH_MAX];
    return *path && snprintf(whole, sizeof whole, "%s/%s/config.json", folder, path) < PATH_MAX &&
           regular_there(whole);
}

/* The first is the model itself; nothing comes behind the normalisation. */
static bool read_module(struct modules *m, struct checkpoint *c, const char *folder, struct keys *module,
                        int *width, struct fault *f)
{
    const char *type = last_name(text_of(module, "type")), *path = text_of(module, "path");
    bool transformer = !strcmp(type, "Transformer"), pooling = !strcmp(type, "Pooling"),
         dense = !strcmp(type, "Dense") && m->pooling;
    if (*path && (strchr(path, '/') || *path == '.'))
        return fault_set(f, "modules: '%.40s' is no folder of the model's", path);
    if (transformer && !*path && !m->pooling) return true;
    if (!m->normalize && m->pooling && !strcmp(type, "Normalize")) {
        m->normalize = true;
        return !has_settings(folder, path) || read_settings(m, c, folder, path, "normalize", width, f);
    }
    if (m->normalize || !*path || !(dense || (pooling && !m->pooling)))
        return fault_set(f, "modules: a module '%.40s' there is not supported", type);
    return read_settings(m, c, folder, path, dense ? "dense" : "pooling", width, f);
}

static bool read_list(struct modules *m, struct checkpoint *c, const char *folder, const json_t *list,
                      int width, struct fault *f)
{
    size_t i;
    json_t *module;
    json_array_foreach(list, i, module)
    {
        struct keys k;
        keys_begin(&k, &modules_keys, "modules", module, "modules.json");
        if (!config_done(&k, read_module(m, c, folder, &k, &width, f), f)) return false;
    }
    if (!m->pooling) return fault_set(f, "modules.json: there is no list of modules with a pooling");
    return checkpoint_sort(c, f);
}

/* ---- GGUF ---- */

/* Layers without bias or activation, as EmbeddingGemma has them. */
static bool stored_dense(struct modules *m, const struct checkpoint *c, const char *path, int *width,
                         struct fault *f)
{
    struct dense d = {.in = *width};
    char name[64];
    snprintf(d.path, sizeof d.path, "%s", path);
    snprintf(name, sizeof name, "modules.%s.linear.weight", path);
    const struct stored_tensor *t = checkpoint_find(c, name);
    if (!t) return true;
    if (t->rank != 2 || t->dims[0] < 1 || t->dims[0] > 1 << 20)
        return fault_set(f, "tensor %s: it is no matrix", name);
    *width = d.out = (int)t->dims[0];
    m->dense[m->dense_count++] = d;
    return true;
}

bool modules_of_gguf(struct modules *m, const struct checkpoint *c, int width, struct fault *f)
{
    static const enum pooling kinds[] = {POOLING_MEAN, POOLING_MEAN, POOLING_FIRST, POOLING_LAST};
    *m = (struct modules){.pooling = POOLING_MEAN};
    m->pooling = kinds[json_integer_value(json_object_get(c->config, "gguf:pooling_type"))]; /* 0 to 3 */
    return stored_dense(m, c, "dense_2", &width, f) && stored_dense(m, c, "dense_3", &width, f);
}

/* ---- Folders ---- */

/* A file that may be missing: then it is NULL, and no fault. */
static bool optional(const char *folder, const char *name, json_t **o, struct fault *f)
{
    char path[PATH_MAX];
    *o = NULL;
    if (snprintf(path, sizeof path, "%s/%s", folder, name) >= PATH_MAX)
        return fault_set(f, "%s: the path is too long", folder);
    return !regular_there(path) || (*o = checkpoint_object(path, f)) != NULL;
}

/* Which texts the model is for: how long they are, and in which letters. */
static bool read_sentences(struct modules *m, const char *folder, struct fault *f)
{
    json_t *o;
    struct keys k;
    if (!optional(folder, "sentence_bert_config.json", &o, f)) return false;
    keys_begin(&k, &modules_keys, "sentence_bert_config", o, "sentence_bert_config.json");
    bool said = keys_get(&k, "max_seq_length") != NULL;
    bool good = !said || config_int(&k, "max_seq_length", NULL, 3, 1 << 23, 0, &m->limit, f);
    good = config_done(&k, good && config_bool(&k, "do_lower_case", false, &m->lower, f), f);
    json_decref(o);
    return good;
}

static bool read_prompts(const char *folder, struct fault *f)
{
    json_t *o;
    struct keys k;
    if (!optional(folder, "config_sentence_transformers.json", &o, f)) return false;
    keys_begin(&k, &modules_keys, "config_sentence_transformers", o, "config_sentence_transformers.json");
    bool good = config_done(&k, true, f);
    json_decref(o);
    return good;
}

/* Where no other file says how long texts are, the tokenizer's does, as sentence-transformers has it. The
 * number is absurdly large where it means nothing. */
static bool read_length(struct modules *m, const char *folder, struct fault *f)
{
    json_t *o;
    if (!optional(folder, "tokenizer_config.json", &o, f)) return false;
    double most = json_number_value(json_object_get(o, "model_max_length"));
    const char *side = json_string_value(json_object_get(o, "truncation_side"));
    bool good = !side || !strcmp(side, "right") ||
                fault_set(f, "tokenizer_config.json: truncation_side '%.20s' is not supported", side);
    if (!m->limit && most >= 3 && most <= 1 << 23) m->limit = (int)most;
    json_decref(o);
    return good;
}

bool modules_read(struct modules *m, struct checkpoint *c, const char *folder, int width, struct fault *f)
{
    char path[PATH_MAX];
    *m = (struct modules){.pooling = POOLING_OF_FILES};
    if (snprintf(path, sizeof path, "%s/modules.json", folder) >= PATH_MAX)
        return fault_set(f, "%s: the path is too long", folder);
    m->given = regular_there(path);
    if (!read_sentences(m, folder, f) || !read_prompts(folder, f) || !read_length(m, folder, f)) return false;
    if (!m->given) return m->pooling = POOLING_MEAN, true;
    json_t *list = checkpoint_json(path, f);
    bool good = list && read_list(m, c, folder, list, width, f);
    json_decref(list);
    return good;
}
