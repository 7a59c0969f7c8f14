/*
 * restore.c -- reads what a run goes on with.
 */
#include <errno.h>
#include <limits.h>
#include <stdlib.h>
#include <string.h>

#include "regular.h"
#include "train_save.h"

struct saved {
    char path[PATH_MAX];
    struct checkpoint files;
    json_t *metadata;
};

static bool path_of(const char *folder, char *path, size_t size)
{
    return snprintf(path, size, "%s/%s", folder, TRAINING_FILE) < (int)size;
}

bool saved_there(const char *folder)
{
    char path[PATH_MAX];
    return path_of(folder, path, sizeof path) && regular_there(path);
}

static void close_saved(struct saved *s)
{
    json_decref(s->metadata);
    checkpoint_close(&s->files);
}

/* The header once more, for what the reader of tensors passes over. */
static json_t *metadata_of(const struct mapped_file *map)
{
    uint64_t n = 0;
    for (int i = 7; i >= 0; i--) n = n << 8 | map->data[i];
    json_t *header = json_loadb((const char *)map->data + 8, (size_t)n, 0, NULL);
    json_t *metadata = json_incref(json_object_get(header, "__metadata__"));
    json_decref(header);
    return metadata;
}

static bool open_saved(struct saved *s, const char *folder, struct fault *f)
{
    struct mapped_file map;
    *s = (struct saved){.metadata = NULL};
    if (!path_of(folder, s->path, sizeof s->path)) return fault_set(f, "%s: the path is too long", folder);
    if (!regular_there(s->path)) return fault_set(f, "%s: there is no run to go on with", s->path);
    if (!checkpoint_map(&s->files, s->path, &map, f) || !safetensors_read(&s->files, s->path, &map, f) ||
        !checkpoint_sort(&s->files, f))
        return false;
    s->metadata = metadata_of(&map);
    const char *format = json_string_value(json_object_get(s->metadata, "format"));
    return (format && !strcmp(format, "coda-train-1")) ||
           fault_set(f, "%s: it is of no run: format '%.32s'", s->path, format ? format : "none");
}

static bool number(const struct saved *s, const char *name, unsigned long long *out, struct fault *f)
{
    char *end;
    const char *text = json_string_value(json_object_get(s->metadata, name));
    errno = 0;
    *out = text ? strtoull(text, &end, 10) : 0;
    return (text && end != text && !*end && !errno) ||
           fault_set(f, "%s: '%s' is '%.32s', no number", s->path, name, text ? text : "none");
}

json_t *saved_settings(const char *folder, struct fault *f)
{
    struct saved s;
    json_t *o = NULL;
    if (open_saved(&s, folder, f)) {
        const char *text = json_string_value(json_object_get(s.metadata, "settings"));
        o = text ? json_loads(text, 0, NULL) : NULL;
        if (!json_is_object(o)) json_decref(o), o = NULL, fault_set(f, "%s: it has no settings", s.path);
    }
    close_saved(&s);
    return o;
}

/* A tensor of so many fp32 numbers. */
static const unsigned char *tensor(const struct saved *s, const char *name, int64_t count, struct fault *f)
{
    const struct stored_tensor *t = checkpoint_use(&s->files, name);
    if (!t) return fault_set(f, "%s: tensor %s is missing", s->path, name), NULL;
    if (t->dtype == CODA_F32 && t->rank == 1 && t->dims[0] == count) return t->data;
    fault_set(f, "%s: tensor %s has %lld numbers of %s, where the run has %lld of F32", s->path, name,
              t->rank ? (long long)t->dims[0] : 1, t->type, (long long)count);
    return NULL;
}

static bool load(const struct saved *s, struct parameters *p, const char *name, char *to, int64_t count,
                 struct fault *f)
{
    const unsigned char *data = tensor(s, name, count, f);
    return data && (device_write(p->device, to, data, (size_t)count * sizeof(float)) ||
                    fault_set(f, "%s: %s cannot be copied to %s", s->path, name, device_name(p->device)));
}

static bool load_history(const struct saved *s, struct history *h, int64_t steps, struct fault *f)
{
    const struct stored_tensor *held = checkpoint_use(&s->files, "held");
    int64_t pairs = held && held->rank == 1 ? held->dims[0] / 2 : 0;
    const unsigned char *loss = tensor(s, "loss", steps, f),
                        *norm = loss ? tensor(s, "norm", steps, f) : NULL;
    const unsigned char *rate = norm ? tensor(s, "rate", steps, f) : NULL;
    const unsigned char *judged = rate ? tensor(s, "held", 2 * pairs, f) : NULL;
    if (!judged) return false;
    for (int64_t i = 0; i < steps; i++) {
        float x[3];
        memcpy(&x[0], loss + 4 * i, 4);
        memcpy(&x[1], norm + 4 * i, 4);
        memcpy(&x[2], rate + 4 * i, 4);
        if (!history_add(h, x[0], x[1], x[2], f)) return false;
    }
    for (int64_t i = 0; i < pairs; i++) {
        float x[2];
        memcpy(x, judged + 8 * i, 8);
        if (!history_judge(h, (int64_t)x[0], x[1], f)) return false;
    }
    return true;
}

static bool load_all(const struct saved *s, struct parameters *p, struct history *h, struct place *at,
                     struct fault *f)
{
    unsigned long long step, epoch, next, digest;
    if (!number(s, "step", &step, f) || !number(s, "epoch", &epoch, f) || !number(s, "next", &next, f) ||
        !number(s, "digest", &digest, f))
        return false;
    *at = (struct place){(int64_t)epoch, (int64_t)next, digest};
    return load(s, p, "p", p->p, p->count, f) && load(s, p, "m", p->m, p->count, f) &&
           load(s, p, "v", p->v, p->begin[GROUP_MUON], f) &&
           (!p->scale || load(s, p, "scale", p->scale, SCALE_BYTES / 4, f)) &&
           load_history(s, h, (int64_t)step, f) && parameters_round(p, f);
}

bool saved_restore(const char *folder, struct parameters *p, struct history *h, struct place *at,
                   struct fault *f)
{
    struct saved s;
    bool good = open_saved(&s, folder, f) && load_all(&s, p, h, at, f);
    close_saved(&s);
    return good;
}
