/*
 * random.c -- the weights of random.h.
 */
#include <stdlib.h>

#include "random.h"
#include "tensor.h"

enum { PERIOD = 1 << 20 }; /* elements after which those of a large weight come again */

/* All of its own. */
static bool draw_small(struct random_weights *r, const coda_arg_info *info, struct device *d, char *to,
                       struct fault *f)
{
    void *host = host_scratch(info->bytes);
    if (!host) return fault_set(f, "%s: out of memory", info->name);
    tensor_random(info, host, &r->state, 0);
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

/* A period from the host, in two parts; then the device doubles what it has. */
static bool fill(struct device *d, char *to, size_t bytes, const char *values, size_t period, size_t first)
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
    return fill(d, to, info->bytes, values, PERIOD * size, first * size) ||
           fault_set(f, "%s: it cannot be copied to the device", info->name);
}

bool random_weight(struct random_weights *r, const coda_arg_info *info, struct device *d, char *to,
                   struct fault *f)
{
    return (element_count(info) > PERIOD ? draw_large : draw_small)(r, info, d, to, f);
}

void random_free(struct random_weights *r)
{
    for (int i = 0; i < RANDOM_KINDS; i++) free(r->kind[i].values);
    free(r->normals);
    *r = (struct random_weights){0};
}
