/*
 * parameters.c -- the memory of what is learned.
 */
#include <stdlib.h>
#include <string.h>

#include "tensor.h"
#include "train_parameters.h"

enum { FROZEN_ALIGNED = 256, LEAF_ALIGNED = 64 /* elements: leaves begin at multiples of 128 bytes */ };

static bool holds(const char *name, const char *part) { return strstr(name, part) != NULL; }

static enum group group_of(const struct weight *w, bool muon, bool adapters)
{
    bool adapter = holds(w->name, ".adapter.");
    if (!w->stored_count || (adapters && !adapter)) return GROUP_FROZEN;
    if (!w->columns) return GROUP_VECTOR;
    bool table = holds(w->name, "embed_tokens") || holds(w->name, "lm_head") || holds(w->name, "wte") ||
                 holds(w->name, "wpe");
    return muon && !table && !adapter ? GROUP_MUON : GROUP_TABLE;
}

static int64_t rounded_up(int64_t n, int64_t to) { return (n + to - 1) / to * to; }

static int64_t elements(const struct weight *w) { return (int64_t)(w->bytes / dtype_bytes(w->dtype)); }

/* Places each parameter in the memory of its group. */
static void place(struct parameters *p, bool muon, bool adapters)
{
    int64_t at = 0;
    for (int group = 0; group < GROUP_FROZEN; group++) {
        p->begin[group] = at;
        for (int i = 0; i < p->n; i++) {
            struct parameter *q = &p->all[i];
            if (group_of(q->w, muon, adapters) != (enum group)group) continue;
            q->group = (enum group)group;
            q->first = at;
            at += rounded_up(q->count, LEAF_ALIGNED);
            p->learned += q->count;
        }
        at = rounded_up(at, PARAMETER_ROW);
    }
    p->begin[GROUP_FROZEN] = p->begin[GROUPS] = p->count = at;
    for (int i = 0; i < p->n; i++) {
        struct parameter *q = &p->all[i];
        if (group_of(q->w, muon, adapters) != GROUP_FROZEN) continue;
        q->group = GROUP_FROZEN;
        q->first = (int64_t)p->frozen_bytes;
        p->frozen_bytes += (size_t)rounded_up((int64_t)q->w->bytes, FROZEN_ALIGNED);
    }
}

static bool allocate(struct parameters *p, char **to, size_t bytes, struct fault *f)
{
    if (!bytes) return true;
    if (!(*to = device_alloc(p->device, bytes)) || !device_clear(p->device, *to, bytes))
        return fault_set(f, "there is no memory for %zu bytes on %s", bytes, device_name(p->device));
    return true;
}

bool parameters_open(struct parameters *p, struct weights *weights, struct device *d,
                     struct parameters_how how, struct fault *f)
{
    *p = (struct parameters){.weights = *weights, .n = weights->count, .device = d};
    *weights = (struct weights){0};
    p->all = calloc((size_t)p->n + 1, sizeof *p->all);
    if (!p->all) return fault_set(f, "out of memory");
    for (int i = 0; i < p->n; i++) {
        const struct weight *w = &p->weights.all[i];
        if (w->kind != WEIGHT_NUMBERS)
            return fault_set(f, "weight %s is quantised, and training wants 16 or 32 bits", w->name);
        p->all[i] = (struct parameter){.w = w, .count = elements(w)};
        p->rounded |= w->dtype != CODA_F32;
        p->scaled |= w->dtype == CODA_F16;
    }
    place(p, how.muon, how.adapters);
    if (!p->count) return fault_set(f, "there is nothing to learn: the family has no adapters");
    size_t bytes = (size_t)p->count * sizeof(float);
    if (how.nowhere) return true;
    return allocate(p, &p->p, bytes, f) && allocate(p, &p->g, how.no_gradients ? 0 : bytes, f) &&
           allocate(p, &p->m, bytes, f) &&
           allocate(p, &p->v, (size_t)p->begin[GROUP_MUON] * sizeof(float), f) &&
           allocate(p, &p->w, p->rounded ? bytes / 2 : 0, f) &&
           allocate(p, &p->scale, p->scaled ? SCALE_BYTES : 0, f) &&
           allocate(p, &p->frozen, p->frozen_bytes, f);
}

void parameters_close(struct parameters *p)
{
    if (!p->device) return;
    char *memory[] = {p->p, p->g, p->m, p->v, p->w, p->scale, p->frozen};
    for (size_t i = 0; i < sizeof memory / sizeof *memory; i++) device_free(p->device, memory[i]);
    free(p->all);
    weights_free(&p->weights);
    *p = (struct parameters){0};
}

const struct parameter *parameters_find(const struct parameters *p, const char *name)
{
    for (int i = 0; i < p->n; i++)
        if (!strcmp(p->all[i].w->name, name)) return &p->all[i];
    return NULL;
}

void *parameters_leaf(const struct parameters *p, const char *name)
{
    const struct parameter *q = parameters_find(p, name);
    if (!q) return NULL;
    if (q->group == GROUP_FROZEN) return p->frozen + q->first;
    return q->w->dtype == CODA_F32 ? p->p + q->first * 4 : p->w + q->first * 2;
}

void *parameters_gradient(const struct parameters *p, const char *output)
{
    const struct parameter *q = strncmp(output, "d.", 2) ? NULL : parameters_find(p, output + 2);
    return q && q->group != GROUP_FROZEN ? p->g + q->first * 4 : NULL;
}

void *parameters_state(const struct parameters *p, const char *name)
{
    const struct parameter *q = strlen(name) > 2 && name[1] == '.' ? parameters_find(p, name + 2) : NULL;
    char *from = name[0] == 'p' ? p->p : name[0] == 'm' ? p->m : name[0] == 'v' ? p->v : NULL;
    return q && from && q->group != GROUP_FROZEN ? from + q->first * 4 : NULL;
}
