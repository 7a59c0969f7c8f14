/*
 * modules.c -- modules.json of sentence-transformers, versions 2 to 6: a transformer, a pooling, any dense
 * layers, a normalisation.
 */
#include <limits.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "config.h"
#include "modules.h"

/* A member that is a text, or "". */
static const char *text_of(const json_t *o, const char *name)
{
    const char *s = json_string_value(json_object_get(o, name));
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
static bool read_pooling(struct modules *m, const json_t *o, struct fault *f)
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
    const char *named = text_of(o, "pooling_mode"), *other = named;
    int count = 0;
    for (size_t i = 0; i < sizeof all / sizeof *all; i++) {
        if (*named ? strcmp(named, all[i].name) : !json_is_true(json_object_get(o, all[i].flag))) continue;
        m->pooling = all[i].is;
        other = all[i].name;
        count++;
    }
    if (count == 1 && m->pooling != POOLING_OF_FILES) return true;
    return fault_set(f, "modules: pooling '%.40s' is not supported", count > 1 ? "of two modes" : other);
}

static bool read_dense(struct modules *m, const json_t *o, const char *path, int *width, struct fault *f)
{
    struct dense *d = &m->dense[m->dense_count];
    const char *act = last_name(text_of(o, "activation_function")), *from = text_of(o, "module_input_name");
    if (m->dense_count == MOST_DENSE)
        return fault_set(f, "modules: %d dense layers are the most", MOST_DENSE);
    if (!config_int(o, "in_features", NULL, *width, *width, 0, &d->in, f) ||
        !config_int(o, "out_features", NULL, 1, 1 << 20, 0, &d->out, f) ||
        !config_bool(o, "bias", true, &d->bias, f))
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

/* The first is the model itself; nothing comes behind the normalisation. */
static bool read_module(struct modules *m, struct checkpoint *c, const char *folder, const json_t *module,
                        int *width, struct fault *f)
{
    const char *type = last_name(text_of(module, "type")), *path = text_of(module, "path");
    bool transformer = !strcmp(type, "Transformer"), pooling = !strcmp(type, "Pooling"),
         dense = !strcmp(type, "Dense") && m->pooling;
    if (*path && (strchr(path, '/') || *path == '.'))
        return fault_set(f, "modules: '%.40s' is no folder of the model's", path);
    if (transformer && !*path && !m->pooling) return true;
    if (!m->normalize && m->pooling && !strcmp(type, "Normalize")) return m->normalize = true;
    if (m->normalize || !*path || !(dense || (pooling && !m->pooling)))
        return fault_set(f, "modules: a module '%.40s' there is not supported", type);
    json_t *o = config_in(folder, path, f);
    bool good = o && (dense ? read_dense(m, o, path, width, f) && checkpoint_add_part(c, folder, path, f)
                            : read_pooling(m, o, f));
    json_decref(o);
    return good;
}

static bool read_list(struct modules *m, struct checkpoint *c, const char *folder, const json_t *list,
                      int width, struct fault *f)
{
    size_t i;
    json_t *module;
    json_array_foreach(list, i, module)
    {
        if (!read_module(m, c, folder, module, &width, f)) return false;
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
    int type;
    *m = (struct modules){.pooling = POOLING_MEAN};
    if (!config_int(c->config, "pooling_type", NULL, 0, 3, 0, &type, f)) return false;
    m->pooling = kinds[type];
    return stored_dense(m, c, "dense_2", &width, f) && stored_dense(m, c, "dense_3", &width, f);
}

/* ---- Folders ---- */

bool modules_read(struct modules *m, struct checkpoint *c, const char *folder, int width, struct fault *f)
{
    char path[PATH_MAX];
    *m = (struct modules){.pooling = POOLING_OF_FILES};
    if (snprintf(path, sizeof path, "%s/modules.json", folder) >= PATH_MAX)
        return fault_set(f, "%s: the path is too long", folder);
    m->given = !access(path, F_OK);
    if (!m->given) return m->pooling = POOLING_MEAN, true;
    json_t *list = checkpoint_json(path, f);
    bool good = list && read_list(m, c, folder, list, width, f);
    json_decref(list);
    return good;
}
