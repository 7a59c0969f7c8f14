/*
 * weights.c -- the list of a graph's weights, and how they get into memory.
 */
#include <stdlib.h>
#include <string.h>

#include "cut.h"
#include "packing.h"
#include "tensor.h"

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

static bool is_ranged(const struct weight *w)
{
    const float *t = w->ranges.times;
    return w->ranges.end[0] && (t[0] != 1 || t[1] != 1 || t[2] != 1);
}

double weight_number(const struct weight *w, double x, int64_t i)
{
    const struct ranges *r = &w->ranges;
    int64_t row = w->columns ? i / w->columns : i;
    if (w->rates) return -exp(x);
    if (is_ranged(w)) return x * (double)r->times[(row >= r->end[0]) + (row >= r->end[1])];
    return (double)((float)x + w->plus);
}

static bool convert(const struct weight *w, const struct stored_tensor *t, struct device *d, char *to,
                    void *scratch, struct fault *f)
{
    size_t size = dtype_bytes(w->dtype), count = t->bytes / dtype_bytes(t->dtype);
    for (size_t at = 0; at < count; at += CHUNK) {
        size_t n = count - at < CHUNK ? count - at : CHUNK;
        for (size_t i = 0; i < n; i++)
            element_set(w->dtype, scratch, (int64_t)i,
                        weight_number(w, (double)stored_number(t, (int64_t)(at + i)), (int64_t)(at + i)));
        if (!device_write(d, to + at * size, scratch, n * size))
            return fault_set(f, "%s: it cannot be copied to the device", t->name);
    }
    return true;
}

static bool load_part(const struct weight *w, const struct stored_tensor *t, struct device *d, char *to,
                      struct fault *f)
{
    if (t->dtype == w->dtype && w->plus == 0 && !w->rates && !is_ranged(w))
        return device_write(d, to, t->data, t->bytes) ||
               fault_set(f, "%s: it cannot be copied to the device", t->name);
    void *scratch = malloc(CHUNK * sizeof(float));
    bool good = scratch ? convert(w, t, d, to, scratch, f) : fault_set(f, "%s: out of memory", t->name);
    free(scratch);
    return good;
}

static bool load_numbers(const struct weight *w, struct device *d, void *to, struct fault *f)
{
    char *at = to;
    if (w->parts && w->slab[0].rows) return weight_load_cut(w, d, to, f);
    if (!w->parts)
        return device_write(d, to, w->numbers, w->bytes) ||
               fault_set(f, "%s: it cannot be copied to the device", w->name);
    for (int i = 0; i < w->parts; i++) {
        if (!load_part(w, w->part[i], d, at, f)) return false;
        at += w->part[i]->bytes / dtype_bytes(w->part[i]->dtype) * dtype_bytes(w->dtype);
    }
    return true;
}

/* ---- Quantised ones ---- */

/* e4m3's NaN, e5m2's infinity and NaN; counted without a branch, so that a pass costs what memory does. */
static bool codes_count(const struct stored_tensor *t, struct fault *f)
{
    size_t wrong = 0;
    uint8_t least = !strcmp(t->type, "F8_E4M3") ? 0x7f : !strcmp(t->type, "F8_E5M2") ? 0x7c : 0xff;
    for (size_t i = 0; i < t->bytes; i++) wrong += (t->data[i] & 0x7f) >= least;
    return !wrong || fault_set(f, "tensor %.150s: %zu of its %zu codes in %s are no finite numbers", t->name,
                               wrong, t->bytes, t->type);
}

static bool load_codes(const struct weight *w, struct device *d, char *to, struct fault *f)
{
    for (int i = 0; i < w->parts; to += w->part[i++]->bytes) {
        if (!codes_count(w->part[i], f)) return false;
        if (!device_write(d, to, w->part[i]->data, w->part[i]->bytes))
            return fault_set(f, "%s: it cannot be copied to the device", w->part[i]->name);
    }
    return true;
}

/* A matrix without a factor has 1. */
static bool factors(const struct stored_matrix *m, float *to, struct fault *f)
{
    const struct stored_tensor *t = m->layout == STORED_SCALED ? m->scales : m->factor;
    int64_t count = t ? stored_elements(t) : 0;
    for (int64_t i = 0; i < m->rows; i++) {
        int64_t at = count == 1 ? 0 : i;
        float x = t ? stored_number(t, at) : 1;
        to[i] = m->divisor ? 1 / x : x;
        if (!isfinite(to[i]))
            return fault_set(f, "tensor %.150s: number %lld is %g", t ? t->name : "?", (long long)at,
                             (double)x);
    }
    return true;
}

static bool load_factors(const struct weight *w, struct device *d, char *to, struct fault *f)
{
    float *all = malloc(w->bytes);
    bool good = all || fault_set(f, "%s: out of memory", w->name);
    int64_t at = 0;
    for (int i = 0; good && i < w->parts; at += w->matrix[i++].rows)
        good = factors(&w->matrix[i], all + at, f);
    good = good && (device_write(d, to, all, w->bytes) ||
                    fault_set(f, "%s: it cannot be copied to the device", w->name));
    free(all);
    return good;
}

/* ---- On a diagonal ---- */

/* Rows [from, from + rows) of the whole, of which a part has the columns from `first` on. */
static bool load_rows(const struct weight *w, int part, int64_t first, void *scratch, struct device *d,
                      char *to, struct fault *f)
{
    const struct stored_tensor *t = w->part[part];
    int64_t n = t ? t->dims[1] : 0;
    for (int64_t row = 0; row < w->rows[part]; row++)
        for (int64_t k = 0; k < w->columns; k++) {
            bool own = k >= first && k < first + n;
            double x = own ? (double)stored_number(t, row * n + k - first) * (double)w->times[part] : 0;
            element_set(w->dtype, scratch, row * w->columns + k, x);
        }
    size_t bytes = (size_t)(w->rows[part] * w->columns) * dtype_bytes(w->dtype);
    return device_write(d, to, scratch, bytes) ||
           fault_set(f, "%s: it cannot be copied to the device", w->name);
}

static bool load_diagonal(const struct weight *w, struct device *d, char *to, struct fault *f)
{
    void *scratch = malloc(w->bytes);
    bool good = scratch || fault_set(f, "%s: out of memory", w->name);
    int64_t first = 0;
    for (int i = 0; good && i < w->parts; i++) {
        good = load_rows(w, i, first, scratch, d, to, f);
        if (w->part[i]) first += w->part[i]->dims[1];
        to += (size_t)(w->rows[i] * w->columns) * dtype_bytes(w->dtype);
    }
    free(scratch);
    return good;
}

bool weight_load(const struct weight *w, struct device *d, void *to, struct fault *f)
{
    switch (w->kind) {
    case WEIGHT_NUMBERS: return load_numbers(w, d, to, f);
    case WEIGHT_CODES: return load_codes(w, d, to, f);
    case WEIGHT_FACTORS: return load_factors(w, d, to, f);
    case WEIGHT_PACKED: return packing_load(w, d, to, f);
    case WEIGHT_ORDER: return packing_load_order(w, d, to, f);
    case WEIGHT_DIAGONAL: return load_diagonal(w, d, to, f);
    }
    return false;
}
