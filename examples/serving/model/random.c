/*
 * random.c -- the weights of random.h.
 */
#include <stdlib.h>

#include "random.h"
#include "tensor.h"

enum { PERIOD = 1 << 20 }; /* elements after which those of a large weight come again */

/* All of its own. */
static bool draw_small(struct random_weights *r, const struct weight *w, const coda_arg_info *info,
                       struct device *d, char *to, struct fault *f)
{
    void *host = host_scratch(info->bytes);
    if (!host) return fault_set(f, "%s: out of memory", info->name);
    tensor_random(info, host, &r->state, 0);
    if (w->rates)
        for (int64_t i = 0, n = element_count(info); i < n; i++)
            element_set(info->dtype, host, i, weight_number(w, element_get(info->dtype, host, i), i));
    bool good = device_write(d, to, host, info->bytes);
    free(host);
    return good || fault_set(f, "%s: it cannot be copied to the device", info->name);
}

static bool draw_normals(struct random_weights *r)
{
    if (r->normals) return true;
    if (!(r->normals = malloc(PERIOD * sizeof *r->normals))) return false;
    for (int i = 0; i < PERIOD; i++) r->normals[i] = (float)normal(&r->state);
    return true;
}

/* The normal numbers over the root of the columns, in the weight's type: those of the last few kinds of
 * weights are kept, since layers have the same. NULL: there is no memory. */
static const char *scaled(struct random_weights *r, coda_dtype dtype, int64_t columns)
{
    double scale = 1 / sqrt((double)columns);
    for (int i = 0; i < RANDOM_KINDS; i++)
        if (r->kind[i].values && r->kind[i].dtype == dtype && r->kind[i].columns == columns)
            return r->kind[i].values;
    struct random_kind *k = &r->kind[r->next++ % RANDOM_KINDS];
    free(k->values);
    *k = (struct random_kind){dtype, columns, host_scratch(PERIOD * dtype_bytes(dtype))};
    for (int64_t i = 0; k->values && i < PERIOD; i++)
        element_set(dtype, k->values, i, scale * (double)r->normals[i]);
    return k->values;
}

/* In two parts from the host; then the device doubles what it has. */
bool random_fill(struct device *d, char *to, size_t bytes, const char *values, size_t period, size_t first)
{
    bool good = device_write(d, to, values + first, period - first) &&
                device_write(d, to + period - first, values, first);
    for (size_t have = period; good && have < bytes; have *= 2)
        good = device_copy(d, to + have, to, have < bytes - have ? have : bytes - have);
    return good;
}

static bool draw_large(struct random_weights *r, const coda_arg_info *info, struct device *d, char *to,
                       struct fault *f)
{
    size_t size = dtype_bytes(info->dtype);
    const char *values = draw_normals(r) ? scaled(r, info->dtype, info->dims[info->rank - 1]) : NULL;
    if (!values) return fault_set(f, "%s: out of memory", info->name);
    size_t first = (size_t)(uniform(&r->state) * PERIOD);
    return random_fill(d, to, info->bytes, values, PERIOD * size, first * size) ||
           fault_set(f, "%s: it cannot be copied to the device", info->name);
}

/* ---- Quantised ones ---- */

/* Codes are normal numbers times this, so that few of f8e4m3 are beyond 448, and few of i8 beyond 127. */
static double code_size(coda_dtype t) { return t == CODA_I8 ? 32 : 64; }

/* As a matrix of one column whose elements have the size of codes. */
static bool draw_codes(struct random_weights *r, const coda_arg_info *info, struct device *d, char *to,
                       struct fault *f)
{
    size_t n = info->bytes < PERIOD ? info->bytes : PERIOD;
    char *host = draw_normals(r) ? host_scratch(n) : NULL;
    if (!host) return fault_set(f, "%s: out of memory", info->name);
    for (size_t i = 0; i < n; i++)
        element_set(info->dtype, host, (int64_t)i, code_size(info->dtype) * (double)r->normals[i]);
    size_t first = (size_t)(uniform(&r->state) * (double)n);
    bool good = random_fill(d, to, info->bytes, host, n, first);
    free(host);
    return good || fault_set(f, "%s: it cannot be copied to the device", info->name);
}

static bool draw_factors(const struct weight *w, const coda_arg_info *info, struct device *d, char *to,
                         struct fault *f)
{
    const struct stored_matrix *m = &w->matrix[0];
    float *host = host_scratch(info->bytes);
    double size = m->layout == STORED_SCALED ? code_size(m->dtype) * sqrt((double)m->columns) : 1;
    for (size_t i = 0; host && i < info->bytes / sizeof *host; i++) host[i] = (float)(1 / size);
    bool good = host && device_write(d, to, host, info->bytes);
    free(host);
    return good || fault_set(f, "%s: it cannot be copied to the device", info->name);
}

bool random_weight(struct random_weights *r, const struct weight *w, const coda_arg_info *info,
                   struct device *d, char *to, struct fault *f)
{
    if (w->kind == WEIGHT_CODES) return draw_codes(r, info, d, to, f);
    if (w->kind == WEIGHT_FACTORS) return draw_factors(w, info, d, to, f);
    if (w->kind == WEIGHT_PACKED)
        return draw_normals(r) ? random_packed(r, w, PERIOD, d, to, f)
                               : fault_set(f, "%s: out of memory", info->name);
    if (w->rates || element_count(info) <= PERIOD) return draw_small(r, w, info, d, to, f);
    return draw_large(r, info, d, to, f);
}

void random_free(struct random_weights *r)
{
    for (int i = 0; i < RANDOM_KINDS; i++) free(r->kind[i].values);
    free(r->normals);
    *r = (struct random_weights){0};
}
