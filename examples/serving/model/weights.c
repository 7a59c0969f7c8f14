/*
 * weights.c -- the list of a graph's weights, and how they get into memory.
 */
#include <stdlib.h>
#include <string.h>

#include "tensor.h"
#include "weights.h"

enum { CHUNK = 1 << 18 }; /* elements that are converted at once */

struct weight *weights_add(struct weights *w, const struct weight *one, const char *name)
{
    if (w->count == w->room) {
        int room = w->room ? 2 * w->room : 64;
        struct weight *more = realloc(w->all, sizeof *more * (size_t)room);
        if (!more) return NULL;
        w->all = more;
        w->room = room;
    }
    struct weight *to = &w->all[w->count];
    *to = *one;
    if (!(to->name = strdup(name))) return NULL;
    w->count++;
    return to;
}

const struct weight *weights_find(const struct weights *w, const char *name)
{
    for (int i = 0; i < w->count; i++)
        if (!strcmp(w->all[i].name, name)) return &w->all[i];
    return NULL;
}

void weight_drop(struct weight *w)
{
    for (int i = 0; i < w->stored_count; i++) free(w->stored[i]);
    w->stored_count = 0;
}

void weights_free(struct weights *w)
{
    for (int i = 0; i < w->count; i++) free(w->all[i].name), weight_drop(&w->all[i]);
    free(w->all);
    *w = (struct weights){0};
}

/* ---- Loading ---- */

/* Element i of a tensor in a file, where nothing is aligned. */
static float element(const struct stored_tensor *t, size_t i)
{
    uint16_t half;
    float whole;
    if (t->dtype == CODA_F32) return memcpy(&whole, t->data + 4 * i, sizeof whole), whole;
    memcpy(&half, t->data + 2 * i, sizeof half);
    return t->dtype == CODA_F16 ? float_of_f16(half) : float_of_bits((uint32_t)half << 16);
}

static bool convert(const struct weight *w, const struct stored_tensor *t, struct device *d, char *to,
                    void *scratch, struct fault *f)
{
    size_t size = dtype_bytes(w->dtype), count = t->bytes / dtype_bytes(t->dtype);
    for (size_t at = 0; at < count; at += CHUNK) {
        size_t n = count - at < CHUNK ? count - at : CHUNK;
        for (size_t i = 0; i < n; i++)
            element_set(w->dtype, scratch, (int64_t)i, (double)(element(t, at + i) + w->plus));
        if (!device_write(d, to + at * size, scratch, n * size))
            return fault_set(f, "%s: it cannot be copied to the device", t->name);
    }
    return true;
}

static bool load_part(const struct weight *w, const struct stored_tensor *t, struct device *d, char *to,
                      struct fault *f)
{
    if (t->dtype == w->dtype && w->plus == 0)
        return device_write(d, to, t->data, t->bytes) ||
               fault_set(f, "%s: it cannot be copied to the device", t->name);
    void *scratch = malloc(CHUNK * sizeof(float));
    bool good = scratch ? convert(w, t, d, to, scratch, f) : fault_set(f, "%s: out of memory", t->name);
    free(scratch);
    return good;
}

bool weight_load(const struct weight *w, struct device *d, void *to, struct fault *f)
{
    char *at = to;
    if (!w->parts)
        return device_write(d, to, w->numbers, w->bytes) ||
               fault_set(f, "%s: it cannot be copied to the device", w->name);
    for (int i = 0; i < w->parts; i++) {
        if (!load_part(w, w->part[i], d, at, f)) return false;
        at += w->part[i]->bytes / dtype_bytes(w->part[i]->dtype) * dtype_bytes(w->dtype);
    }
    return true;
}
