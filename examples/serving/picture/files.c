/*
 * files.c -- the folder of a picture's network, and the sizes of a run.
 */
#include <errno.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#include "adapter.h"
#include "npy.h"
#include "picture.h"
#include "regular.h"

static bool join(char path[PATH_MAX], const char *folder, const char *name, struct fault *f)
{
    return snprintf(path, PATH_MAX, "%s/%s", folder, name) < PATH_MAX ||
           fault_set(f, "%.100s: the path is too long", folder);
}

/* ---- The folder ---- */

/* Each block of the decoder but one doubles the side, and of a video some double the frames. Without a
 * decoder latents are pixels. */
static bool read_scale(struct picture *p, const char *folder, struct fault *f)
{
    char path[PATH_MAX];
    p->scale = p->time_scale = 1;
    if (!join(path, folder, "vae/config.json", f)) return false;
    if (!regular_there(path)) {
        if (!join(path, folder, "vae", f)) return false;
        return !regular_there(path) || fault_set(f, "%.200s: there is no config.json in it", path);
    }
    json_t *vae = checkpoint_object(path, f), *times = json_object_get(vae, "temperal_downsample");
    const char *name = p->config.kind == PICTURE_WAN ? "dim_mult" : "block_out_channels";
    size_t n = json_array_size(json_object_get(vae, name)), each = json_array_size(times);
    bool good = vae && ((n > 0 && n < 8) || fault_set(f, "%.200s: %s is no list of 1 to 7", path, name));
    if (good) p->scale = 1 << (n - 1);
    for (size_t i = 0; good && i < each && i < 7; i++)
        p->time_scale <<= json_is_true(json_array_get(times, i));
    json_decref(vae);
    return good;
}

/* Whether the folder names a decoder: then it must be there. */
static bool read_index(const char *folder, struct fault *f)
{
    char path[PATH_MAX];
    struct stat s;
    if (stat(folder, &s))
        return fault_set(f, "%.200s: %s; examples/serving/digits draws digits", folder, strerror(errno));
    if (!S_ISDIR(s.st_mode)) return fault_set(f, "%.200s: it is no folder", folder);
    if (!join(path, folder, "model_index.json", f)) return false;
    if (!regular_there(path))
        return fault_set(
            f, "%.200s: there is no model_index.json in it; examples/serving/digits draws digits", folder);
    json_t *index = checkpoint_object(path, f), *vae = json_object_get(index, "vae");
    bool named = json_is_array(vae) && json_is_string(json_array_get(vae, 1)), good = index != NULL;
    if (good && !json_object_get(index, "transformer"))
        good = fault_set(f, "%.200s: there is no transformer in it: others are not supported", path);
    if (good && json_is_string(json_array_get(json_object_get(index, "transformer_2"), 1)))
        good = fault_set(f, "%.200s: networks that take turns are not supported", path);
    if (good && json_is_true(json_object_get(index, "expand_timesteps")))
        good = fault_set(f, "%.200s: expand_timesteps is not supported", path);
    if (good && named && (good = join(path, folder, "vae/config.json", f)) && !regular_there(path))
        good = fault_set(f, "%.200s: the index names a vae, of which there is no config.json", folder);
    json_decref(index);
    return good;
}

static bool read_schedule(struct picture *p, const char *folder, struct fault *f)
{
    char path[PATH_MAX];
    if (!join(path, folder, "scheduler/scheduler_config.json", f)) return false;
    json_t *o = checkpoint_object(path, f);
    bool good = o && picture_schedule_read(&p->schedule, &p->config, o, f);
    json_decref(o);
    return good;
}

bool picture_read(struct picture *p, const char *path, struct fault *f)
{
    char folder[PATH_MAX];
    bool good;
    if (p->opt.open.random) {
        good = checkpoint_open_config(&p->m.files, path, f) &&
               picture_config_read(&p->config, p->m.files.config, f) &&
               picture_schedule_read(&p->schedule, &p->config, NULL, f);
        p->scale = p->config.channels <= 3 ? 1 : 8;
        p->time_scale = 4;
    } else {
        good = read_index(path, f) && join(folder, path, "transformer", f) &&
               checkpoint_open_named(&p->m.files, folder, "diffusion_pytorch_model", f) &&
               (!p->opt.open.adapter || adapter_read(&p->m.files, p->opt.open.adapter, f)) &&
               picture_config_read(&p->config, p->m.files.config, f) && read_schedule(p, path, f) &&
               read_scale(p, path, f);
    }
    times_end(&p->m.times, "files");
    return good;
}

/* ---- Arrays ---- */

/* The dims less ones that lead and are 1. */
static int tail(const int64_t *dims, int rank)
{
    int first = 0;
    while (first < rank - 1 && dims[first] == 1) first++;
    return first;
}

static bool fits(const struct npy *n, const int64_t *dims, int rank, int *tokens)
{
    int a = tail(n->dim, n->rank), b = tail(dims, rank);
    bool free_tokens = tokens && !*tokens && rank > 1;
    if (free_tokens) b = b > rank - 2 ? rank - 2 : b;
    if (free_tokens && n->rank > 1 && a > n->rank - 2) a = n->rank - 2;
    if (n->rank - a != rank - b || !n->elements) return false;
    for (int i = 0; i < rank - b; i++) {
        bool any = free_tokens && b + i == rank - 2;
        if (any ? n->dim[a + i] > MOST_TOKENS : n->dim[a + i] != dims[b + i]) return false;
        if (any) *tokens = (int)n->dim[a + i];
    }
    return true;
}

static void print_dims(char *to, size_t size, const int64_t *dims, int rank)
{
    size_t at = (size_t)snprintf(to, size, "[");
    for (int i = 0; i < rank && at < size; i++)
        at += dims[i] ? (size_t)snprintf(to + at, size - at, "%s%lld", i ? ", " : "", (long long)dims[i])
                      : (size_t)snprintf(to + at, size - at, "%sN", i ? ", " : "");
    if (at < size) snprintf(to + at, size - at, "]");
}

float *picture_array(const char *path, const int64_t *dims, int rank, int *tokens, struct fault *f)
{
    struct npy n;
    char there[128], wanted[128];
    const char *error = npy_open(&n, path);
    if (error) return fault_set(f, "%.200s %s", path, error), NULL;
    print_dims(there, sizeof there, n.dim, n.rank);
    print_dims(wanted, sizeof wanted, dims, rank);
    float *to = NULL;
    if (n.kind != 'f') fault_set(f, "%.200s has integers, and floats are wanted", path);
    else if (!fits(&n, dims, rank, tokens))
        fault_set(f, "%.160s is %s, and %s is wanted", path, there, wanted);
    else if ((error = npy_load(&n))) fault_set(f, "%.200s %s", path, error);
    else if (!(to = malloc(sizeof *to * (size_t)n.elements))) fault_set(f, "%.200s: out of memory", path);
    for (int64_t i = 0; to && i < n.elements; i++) to[i] = (float)npy_get(&n, i);
    npy_free(&n);
    return to;
}
