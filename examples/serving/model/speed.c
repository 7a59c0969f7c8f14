/*
 * speed.c -- bytes of a step, and the time of a copy.
 */
#include "speed.h"
#include "tensor.h"

/* Of two tables of tokens one is read by rows, the other is the head. */
static double weight_bytes(const struct model *m)
{
    double bytes = 0, table = 0;
    int tables = 0; /* and heads */
    for (int i = 0; i < m->weights.count; i++) {
        const struct weight *w = &m->weights.all[i];
        bytes += (double)w->bytes;
        if (w->height == m->config.vocabulary && w->columns == m->config.hidden)
            tables++, table = (double)w->bytes;
    }
    return tables == 2 ? bytes - table : bytes;
}

double speed_bytes(const struct model *m, int length)
{
    const struct config *c = &m->config;
    double row = 2.0 * c->kv_heads * c->head_dim * (double)dtype_bytes(m->opt.dtype), rows = 0;
    for (int l = 0; l < c->layers; l++)
        if (c->keeps[l]) rows += c->sliding[l] && c->window > 0 && c->window < length ? c->window : length;
    return weight_bytes(m) + row * rows + 2 * (double)m->recurrent;
}

/* Larger than any cache on the chip. */
enum { COPIED = 256 << 20, COPIES = 5 };

static double best_copy(const struct gpu *g, gpu_address to, gpu_address from, gpu_event begin, gpu_event end)
{
    double best = 0;
    for (int i = 0; i < COPIES; i++) {
        float ms = 0;
        if (g->event_record(begin, NULL) || g->copy(to, from, COPIED) || g->event_record(end, NULL)) return 0;
        if (g->event_wait(end) || g->event_ms(&ms, begin, end)) return 0;
        if (ms > 0) best = fmax(best, 2.0 * COPIED / (ms / 1e3));
    }
    return best;
}

double speed_copy(struct device *d)
{
    if (!d->on_gpu) return 0;
    gpu_address to = gpu_alloc(&d->gpu, COPIED), from = gpu_alloc(&d->gpu, COPIED);
    gpu_event begin, end;
    double best = 0;
    if (to && from && !d->gpu.set(from, 0, COPIED) && !d->gpu.event_new(&begin, 0) &&
        !d->gpu.event_new(&end, 0))
        best = best_copy(&d->gpu, to, from, begin, end);
    if (to) d->gpu.free(to);
    if (from) d->gpu.free(from);
    return best;
}
