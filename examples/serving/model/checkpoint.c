/*
 * checkpoint.c -- finds a model's files, maps them, and finds tensors by name.
 */
#include <errno.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include "checkpoint.h"
#include "json_text.h"
#include "regular.h"

enum { MOST_TENSORS = 1 << 20 };

/* ---- Files ---- */

static bool map_open(int fd, int64_t bytes, const char *path, struct mapped_file *out, struct fault *f)
{
    if (bytes == 0) return fault_set(f, "%s: the file is empty", path);
    void *data = mmap(NULL, (size_t)bytes, PROT_READ, MAP_PRIVATE, fd, 0);
    if (data == MAP_FAILED) return fault_set(f, "%s: %s", path, strerror(errno));
    *out = (struct mapped_file){data, (size_t)bytes};
    return true;
}

static bool map_file(struct checkpoint *c, const char *path, int64_t most, struct mapped_file *out,
                     struct fault *f)
{
    char why[128];
    int64_t bytes;
    struct mapped_file *more = realloc(c->file, sizeof *more * ((size_t)c->files + 1));
    if (!more) return fault_set(f, "%s: out of memory", path);
    c->file = more;
    int fd = regular_open(path, most, &bytes, why, sizeof why);
    if (fd < 0) return fault_set(f, "%s: %s", path, why);
    bool good = map_open(fd, bytes, path, out, f);
    close(fd);
    if (good) c->file[c->files++] = *out;
    return good;
}

bool checkpoint_map(struct checkpoint *c, const char *path, struct mapped_file *out, struct fault *f)
{
    return map_file(c, path, REGULAR_ANY, out, f);
}

json_t *checkpoint_json(const char *path, struct fault *f)
{
    struct checkpoint temporary = {0};
    struct mapped_file map;
    json_error_t e;
    json_t *value = NULL;
    if (map_file(&temporary, path, REGULAR_JSON, &map, f) &&
        !(value = json_text((const char *)map.data, map.bytes, JSON_REJECT_DUPLICATES, &e)))
        fault_set(f, "%s: line %d: %s", path, e.line, e.text);
    checkpoint_close(&temporary);
    return value;
}

json_t *checkpoint_object(const char *path, struct fault *f)
{
    json_t *value = checkpoint_json(path, f);
    if (!value || json_is_object(value)) return value;
    fault_set(f, "%s: no JSON object", path);
    json_decref(value);
    return NULL;
}

/* ---- Tensors ---- */

int64_t stored_elements(const struct stored_tensor *t)
{
    int64_t count = 1;
    for (int d = 0; d < t->rank; d++) count *= t->dims[d];
    return count;
}

int stored_measure(struct stored_tensor *t)
{
    int64_t count = 1;
    int last = t->rank > 0 ? t->rank - 1 : 0;
    for (int d = 0; d < t->rank; d++)
        if (t->dims[d] < 0 || __builtin_mul_overflow(count, t->dims[d], &count) ||
            count > INT64_MAX / 2 / t->block_bytes)
            return d;
    t->bytes = (size_t)(count / t->block * t->block_bytes);
    return count % t->block ? last : -1;
}

bool checkpoint_add(struct checkpoint *c, const struct stored_tensor *t, const char *name, const char *stored,
                    struct fault *f)
{
    bool renamed = strcmp(name, stored) != 0;
    if (c->count == MOST_TENSORS) return fault_set(f, "%s: more than %d tensors", name, MOST_TENSORS);
    if (c->count == c->room) {
        int room = c->room ? 2 * c->room : 64;
        struct stored_tensor *more = realloc(c->tensor, sizeof *more * (size_t)room);
        if (!more) return fault_set(f, "%s: out of memory", name);
        c->tensor = more;
        c->room = room;
    }
    struct stored_tensor *to = &c->tensor[c->count];
    *to = *t;
    to->name = strdup(name);
    to->stored = renamed ? strdup(stored) : NULL;
    c->count++;
    return (to->name && (to->stored || !renamed)) || fault_set(f, "%s: out of memory", name);
}

static int by_name(const void *a, const void *b)
{
    return strcmp(((const struct stored_tensor *)a)->name, ((const struct stored_tensor *)b)->name);
}

bool checkpoint_sort(struct checkpoint *c, struct fault *f)
{
    if (c->count) qsort(c->tensor, (size_t)c->count, sizeof *c->tensor, by_name);
    for (int i = 1; i < c->count; i++)
        if (!strcmp(c->tensor[i - 1].name, c->tensor[i].name))
            return fault_set(f, "tensor %s: two files have it", c->tensor[i].name);
    return true;
}

const struct stored_tensor *checkpoint_find(const struct checkpoint *c, const char *name)
{
    struct stored_tensor key = {.name = (char *)(uintptr_t)name};
    return c->count ? bsearch(&key, c->tensor, (size_t)c->count, sizeof *c->tensor, by_name) : NULL;
}

const struct stored_tensor *checkpoint_use(const struct checkpoint *c, const char *name)
{
    const struct stored_tensor *t = checkpoint_find(c, name);
    if (t) c->tensor[t - c->tensor].used = true;
    return t;
}

/* ---- Which files ---- */

bool name_ends(const char *name, const char *end)
{
    size_t n = strlen(name), m = strlen(end);
    return n >= m && !strcmp(name + n - m, end);
}

bool checkpoint_is_gguf(const char *path) { return name_ends(path, ".gguf"); }

static bool join(char path[PATH_MAX], const char *folder, const char *name, struct fault *f)
{
    int n = snprintf(path, PATH_MAX, "%s/%s", folder, name);
    return n < PATH_MAX || fault_set(f, "%s: the path is too long", folder);
}

static bool add_file(struct checkpoint *c, const char *folder, const char *name, struct fault *f)
{
    char path[PATH_MAX];
    struct mapped_file map;
    return join(path, folder, name, f) && checkpoint_map(c, path, &map, f) &&
           safetensors_read(c, name, &map, f);
}

bool checkpoint_add_part(struct checkpoint *c, const char *folder, const char *part, struct fault *f)
{
    char path[PATH_MAX];
    int first = c->count;
    if (!join(path, folder, part, f) || !add_file(c, path, "model.safetensors", f)) return false;
    for (int i = first; i < c->count; i++) {
        char *name = c->tensor[i].name, *whole = NULL;
        if (asprintf(&whole, "modules.%s.%s", part, name) < 0) return fault_set(f, "%s: out of memory", name);
        c->tensor[i].name = whole;
        free(name);
    }
    return true;
}

/* A shard is a file of the same folder, and no index, so that nothing leads elsewhere or back. */
static bool shard_named(const char *name, const char *tensor, struct fault *f)
{
    if (*name && *name != '.' && !strchr(name, '/') && name_ends(name, ".safetensors")) return true;
    return fault_set(f, "index: tensor %s: '%s' is no name of a shard", tensor, name);
}

/* Reads each shard once: it is known by its first tensor in the map. */
static bool add_shards(struct checkpoint *c, const char *folder, json_t *weight_map, struct fault *f)
{
    const char *tensor;
    json_t *shard, *seen = json_object();
    bool good = seen || fault_set(f, "index: out of memory");
    json_object_foreach(weight_map, tensor, shard)
    {
        const char *name = json_string_value(shard);
        if (!good) break;
        if (!name) good = fault_set(f, "index: tensor %s: the shard is no text", tensor);
        else if (!shard_named(name, tensor, f)) good = false;
        else if (!json_object_get(seen, name))
            good = !json_object_set_new(seen, name, json_true()) && add_file(c, folder, name, f);
    }
    json_decref(seen);
    return good;
}

static bool all_there(const struct checkpoint *c, json_t *weight_map, struct fault *f)
{
    const char *tensor;
    json_t *shard;
    json_object_foreach(weight_map, tensor, shard)
    {
        if (!checkpoint_find(c, tensor))
            return fault_set(f, "tensor %s: the index places it in %s, which lacks it", tensor,
                             json_string_value(shard));
    }
    return true;
}

/* Beside the map there are sums of bytes, which the shards say themselves. */
static bool only_map(json_t *index, const char *path, struct fault *f)
{
    const char *name;
    json_t *v;
    json_object_foreach(index, name, v)
    {
        if (strcmp(name, "weight_map") && strcmp(name, "metadata"))
            return fault_set(f, "%s: key '%.100s' is not known", path, name);
    }
    return true;
}

static bool add_index(struct checkpoint *c, const char *folder, const char *path, struct fault *f)
{
    json_t *index = checkpoint_object(path, f), *map = json_object_get(index, "weight_map");
    bool good = index && only_map(index, path, f);
    if (good && !json_is_object(map)) good = fault_set(f, "%s: weight_map is missing, or no object", path);
    good = good && add_shards(c, folder, map, f) && checkpoint_sort(c, f) && all_there(c, map, f);
    json_decref(index);
    return good;
}

/* The words of gguf_config are no file's. */
static bool read_config(struct checkpoint *c, const char *path, struct fault *f)
{
    if (!(c->config = checkpoint_object(path, f))) return false;
    char *text = json_dumps(c->config, JSON_COMPACT);
    const char *word = text ? strstr(text, "\"gguf:") : NULL;
    bool good = text || fault_set(f, "%s: out of memory", path);
    if (word) good = fault_set(f, "%s: '%.*s' is not known", path, (int)strcspn(word + 1, "\""), word + 1);
    free(text);
    return good;
}

/* The folder of an adapter is another model than its base, which may lie there, too. */
static bool no_adapter(const char *folder, struct fault *f)
{
    char path[PATH_MAX];
    if (!join(path, folder, "adapter_config.json", f)) return false;
    return !regular_there(path) || fault_set(f, "%s: adapters are not supported", path);
}

/* One line, whatever the program: what is there, and where others are. */
static bool no_model(const char *path, const char *why, struct fault *f)
{
    return fault_set(
        f,
        "%.100s: %s. examples/serving/stories260K/stories260K.gguf writes stories; `make -C examples/serving "
        "embed-data` fetches a model for embed; others are at https://huggingface.co/models",
        path, why);
}

/* What older versions of ModelOpt and AutoGPTQ write beside config.json, in the words of its
 * quantization_config. */
static bool add_quantization(struct checkpoint *c, const char *folder, const char *name, const char *method,
                             struct fault *f)
{
    char path[PATH_MAX];
    if (json_object_get(c->config, "quantization_config")) return true;
    if (!join(path, folder, name, f)) return false;
    if (!regular_there(path)) return true;
    json_t *whole = checkpoint_object(path, f), *inner = json_object_get(whole, "quantization");
    json_t *copy = json_copy(inner ? inner : whole);
    bool good = copy && (json_object_get(copy, "quant_method") ||
                         !json_object_set_new(copy, "quant_method", json_string(method)));
    if (whole && !good) fault_set(f, "%s: it cannot be understood", path);
    if (good) json_object_set(c->config, "quantization_config", copy);
    json_decref(copy);
    json_decref(whole);
    return good;
}

/* config.json, and generation_config.json where it is there. */
static bool add_config(struct checkpoint *c, const char *folder, struct fault *f)
{
    char path[PATH_MAX];
    if (!join(path, folder, "config.json", f)) return false;
    if (!regular_there(path)) return no_model(folder, "there is no config.json in it", f);
    if (!read_config(c, path, f) || !no_adapter(folder, f) ||
        !add_quantization(c, folder, "hf_quant_config.json", "modelopt", f) ||
        !add_quantization(c, folder, "quantize_config.json", "gptq", f))
        return false;
    if (!join(path, folder, "generation_config.json", f)) return false;
    return !regular_there(path) || (c->generation = checkpoint_object(path, f));
}

/* The tensors of a folder's `name`.safetensors, or of the shards that its index names. */
static bool add_tensors(struct checkpoint *c, const char *folder, const char *name, struct fault *f)
{
    char path[PATH_MAX], file[128];
    snprintf(file, sizeof file, "%.80s.safetensors.index.json", name);
    if (!join(path, folder, file, f)) return false;
    if (regular_there(path)) return add_index(c, folder, path, f);
    snprintf(file, sizeof file, "%.80s.safetensors", name);
    if (!join(path, folder, file, f)) return false;
    if (!regular_there(path))
        return fault_set(f, "%s: there is no %s; pytorch_model.bin and others are not read", folder, file);
    return add_file(c, folder, file, f);
}

static bool add_folder(struct checkpoint *c, const char *folder, struct fault *f)
{
    return add_config(c, folder, f) && add_tensors(c, folder, "model", f);
}

bool checkpoint_open_named(struct checkpoint *c, const char *folder, const char *name, struct fault *f)
{
    *c = (struct checkpoint){0};
    bool good = add_config(c, folder, f) && add_tensors(c, folder, name, f) && checkpoint_sort(c, f);
    if (!good) checkpoint_close(c);
    return good;
}

static bool add_beside(struct checkpoint *c, const char *path, struct fault *f)
{
    char folder[PATH_MAX];
    const char *slash = strrchr(path, '/');
    if (!checkpoint_folder(path, folder, sizeof folder))
        return fault_set(f, "%s: the path is too long", path);
    return add_config(c, folder, f) && add_file(c, folder, slash ? slash + 1 : path, f);
}

bool checkpoint_folder(const char *path, char *folder, size_t size)
{
    const char *slash = strrchr(path, '/');
    struct stat s;
    bool whole = !stat(path, &s) && S_ISDIR(s.st_mode);
    const char *from = whole || slash ? path : ".";
    size_t n = whole || !slash ? strlen(from) : slash == path ? 1 : (size_t)(slash - path);
    return (size_t)snprintf(folder, size, "%.*s", (int)n, from) < size;
}

bool checkpoint_open_config(struct checkpoint *c, const char *path, struct fault *f)
{
    struct stat s;
    *c = (struct checkpoint){0};
    bool folder = !stat(path, &s) && S_ISDIR(s.st_mode);
    bool good = folder ? add_config(c, path, f) : read_config(c, path, f);
    if (!good) checkpoint_close(c);
    return good;
}

coda_dtype checkpoint_dtype(const struct checkpoint *c)
{
    const struct stored_tensor *largest = NULL;
    for (int i = 0; i < c->count; i++)
        if (c->tensor[i].dtype && (!largest || c->tensor[i].bytes > largest->bytes)) largest = &c->tensor[i];
    bool blocks = false; /* of a file whose other tensors are F32, whatever they were made of */
    for (int i = 0; i < c->count; i++) blocks |= c->tensor[i].block > 2;
    if (blocks && (!largest || largest->dtype == CODA_F32)) return CODA_BF16;
    return largest ? largest->dtype : CODA_F32;
}

bool checkpoint_open(struct checkpoint *c, const char *path, struct fault *f)
{
    struct mapped_file map;
    struct stat s;
    bool good;
    *c = (struct checkpoint){0};
    if (stat(path, &s)) return no_model(path, strerror(errno), f);
    if (!S_ISDIR(s.st_mode) && !checkpoint_is_gguf(path) && !name_ends(path, ".safetensors"))
        return fault_set(f, "%s: neither a folder nor a file in .safetensors or .gguf", path);
    if (checkpoint_is_gguf(path)) good = checkpoint_map(c, path, &map, f) && gguf_read(c, path, &map, f);
    else good = name_ends(path, ".safetensors") ? add_beside(c, path, f) : add_folder(c, path, f);
    good = good && checkpoint_sort(c, f);
    if (!good) checkpoint_close(c);
    return good;
}

void checkpoint_close(struct checkpoint *c)
{
    for (int i = 0; i < c->count; i++) free(c->tensor[i].name), free(c->tensor[i].stored);
    for (int i = 0; i < c->files; i++) munmap((void *)(uintptr_t)c->file[i].data, c->file[i].bytes);
    free(c->tensor);
    free(c->file);
    json_decref(c->config);
    json_decref(c->generation);
    *c = (struct checkpoint){0};
}
