/*
 * random.c -- the weights of chat_random.h.
 */
#include <stdlib.h>

#include "chat_random.h"
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

static bool draw_large(struct random_weights *r, const coda_arg_info *info, struct device *d, char *to,
                       struct fault *f)
{
    int64_t count = element_count(info);
    size_t size = dtype_bytes(info->dtype);
    double scale = 1 / sqrt((double)info->dims[info->rank - 1]);
    char *host = host_scratch(PERIOD * size);
    if (!r->normals && (r->normals = malloc(PERIOD * sizeof *r->normals)))
        for (int i = 0; i < PERIOD; i++) r->normals[i] = (float)normal(&r->state);
    bool good = (host && r->normals) || fault_set(f, "%s: out of memory", info->name);
    uint64_t first = (uint64_t)(uniform(&r->state) * PERIOD);
    for (int64_t i = 0; good && i < PERIOD; i++)
        element_set(info->dtype, host, i, scale * (double)r->normals[(first + (uint64_t)i) % PERIOD]);
    for (int64_t at = 0; good && at < count; at += PERIOD) {
        int64_t n = count - at < PERIOD ? count - at : PERIOD;
        good = device_write(d, to + (size_t)at * size, host, (size_t)n * size) ||
               fault_set(f, "%s: it cannot be copied to the device", info->name);
    }
    free(host);
    return good;
}

bool random_weight(struct random_weights *r, const coda_arg_info *info, struct device *d, char *to,
                   struct fault *f)
{
    return (element_count(info) > PERIOD ? draw_large : draw_small)(r, info, d, to, f);
}
