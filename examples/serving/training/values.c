/*
 * values.c -- what the parameters are at first, rounded, and read.
 */
#include <stdlib.h>
#include <string.h>

#include "tensor.h"
#include "train_parameters.h"

enum { CHUNK = 1 << 18 };

/* The deviation of a random matrix: sqrt(2 / (5 columns of a state)) (Nguyen & Salazar, arXiv 1910.05895),
 * and of those whose results are added to a state, of which there are two a layer, that over sqrt(2 layers)
 * (GPT-2). The second matrix of an adapter is 0, so that it changes nothing at first. */
static double deviation(const struct weight *w, int64_t hidden, int layers)
{
    if (name_ends(w->name, ".adapter.b")) return 0;
    if (name_ends(w->name, ".adapter.a")) return 1 / sqrt((double)w->columns);
    double small = sqrt(2 / (5.0 * (double)hidden));
    bool adds = name_ends(w->name, "o_proj.weight") || name_ends(w->name, "down_proj.weight") ||
                name_ends(w->name, "c_proj.weight");
    return adds ? small / sqrt(2.0 * layers) : small;
}

static bool fill_random(struct parameters *p, const struct parameter *q, int64_t hidden, int layers,
                        uint64_t *state, float *chunk, struct fault *f)
{
    double scale = deviation(q->w, hidden, layers), constant = name_ends(q->w->name, ".bias") ? 0 : 1;
    for (int64_t at = 0; at < q->count; at += CHUNK) {
        int64_t n = q->count - at < CHUNK ? q->count - at : CHUNK;
        for (int64_t i = 0; i < n; i++) chunk[i] = (float)(q->w->columns ? scale * normal(state) : constant);
        if (!device_write(p->device, p->p + (q->first + at) * 4, chunk, (size_t)n * 4))
            return fault_set(f, "%s: it cannot be copied to the device", q->w->name);
    }
    return true;
}

/* What is learned is fp32, whatever the tensors are. */
static bool fill_stored(struct parameters *p, const struct parameter *q, struct fault *f)
{
    struct weight whole = *q->w;
    if (q->group == GROUP_FROZEN) return weight_load(q->w, p->device, p->frozen + q->first, f);
    whole.dtype = CODA_F32;
    return weight_load(&whole, p->device, p->p + q->first * 4, f);
}

/* Columns of a state: those of a vector of gains that each family has. */
static int64_t hidden_of(const struct parameters *p)
{
    for (int i = 0; i < p->n; i++)
        if (p->all[i].w->columns && p->all[i].w->stored_count) return p->all[i].w->columns;
    return 1;
}

bool parameters_fill(struct parameters *p, uint64_t seed, int layers, struct fault *f)
{
    float *chunk = malloc(CHUNK * sizeof *chunk);
    uint64_t state = seed;
    bool good = chunk || fault_set(f, "out of memory");
    for (int i = 0; good && i < p->n; i++) {
        const struct parameter *q = &p->all[i];
        if (q->w->parts || q->w->numbers) good = fill_stored(p, q, f);
        else good = fill_random(p, q, hidden_of(p), layers, &state, chunk, f);
    }
    free(chunk);
    return good && parameters_round(p, f);
}

/* By host memory, a part at a time. */
bool parameters_round(struct parameters *p, struct fault *f)
{
    if (!p->rounded) return true;
    float *chunk = malloc(CHUNK * sizeof *chunk);
    coda_dtype to = CODA_F32;
    bool good = chunk || fault_set(f, "out of memory");
    for (int i = 0; i < p->n; i++)
        if (p->all[i].w->dtype != CODA_F32) to = p->all[i].w->dtype;
    for (int64_t at = 0; good && at < p->count; at += CHUNK) {
        int64_t n = p->count - at < CHUNK ? p->count - at : CHUNK;
        good = device_read(p->device, chunk, p->p + at * 4, (size_t)n * 4);
        for (int64_t i = 0; good && i < n; i++) element_set(to, chunk, i, (double)chunk[i]);
        good = good && device_write(p->device, p->w + at * 2, chunk, (size_t)n * 2);
        if (!good) fault_set(f, "weights cannot be copied to or from %s", device_name(p->device));
    }
    free(chunk);
    return good;
}

bool parameters_read(const struct parameters *p, const struct parameter *of, int64_t at, int64_t n, float *to,
                     struct fault *f)
{
    size_t size = of->group == GROUP_FROZEN ? dtype_bytes(of->w->dtype) : sizeof *to;
    const char *from = of->group == GROUP_FROZEN ? p->frozen + of->first : p->p + of->first * 4;
    if (!device_read(p->device, to, from + (size_t)at * size, (size_t)n * size))
        return fault_set(f, "%s: it cannot be copied from %s", of->w->name, device_name(p->device));
    if (of->group == GROUP_FROZEN && size < 4)
        for (int64_t i = n; i-- > 0;) to[i] = (float)element_get(of->w->dtype, to, i);
    for (int64_t i = 0; i < n; i++) to[i] -= of->w->plus;
    return true;
}
