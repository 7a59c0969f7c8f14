/*
 * loading.c -- the thread of loading.h.
 */
#include <pthread.h>
#include <stdlib.h>

#include "loading.h"
#include "progress.h"
#include "random.h"

enum { ALIGNED = 256 };

struct loading {
    struct model *m;
    coda_graph *const *graphs;
    int count;
    pthread_t thread;
    struct random_weights random;
    struct fault fault;
    bool good;
    double seconds;
};

static size_t aligned(size_t bytes) { return (bytes + ALIGNED - 1) / ALIGNED * ALIGNED; }

static bool load_weight(struct loading *l, const coda_arg_info *info)
{
    struct model *m = l->m;
    const struct weight *w = weights_find(&m->weights, info->name);
    if (!w || w->bytes != info->bytes) return fault_set(&l->fault, "weight %s: it has no tensor", info->name);
    char *to = (char *)m->memory[CODA_ARG_WEIGHT] + w->offset;
    if (w->parts || w->numbers) return weight_load(w, &m->device, to, &l->fault);
    return random_weight(&l->random, w, info, &m->device, to, &l->fault);
}

static void load_graph(struct loading *l, const coda_graph *g, int64_t *done)
{
    coda_arg_info info = CODA_ARG_INFO_INIT;
    int64_t all = (int64_t)l->m->bytes[CODA_ARG_WEIGHT];
    for (int i = 0; l->good && i < coda_graph_args(g); i++)
        if (coda_graph_arg(g, i, &info) == CODA_OK && info.kind == CODA_ARG_WEIGHT) {
            l->good = load_weight(l, &info);
            *done += (int64_t)aligned(info.bytes);
            progress_count(l->m->opt.progress, *done / 1000000, all / 1000000, "MB");
        }
}

static void *load(void *context)
{
    struct loading *l = context;
    double began = times_now();
    int64_t done = 0;
    l->good = device_enter(&l->m->device) || fault_set(&l->fault, "a thread cannot use the GPU");
    for (int i = 0; i < l->count; i++) load_graph(l, l->graphs[i], &done);
    device_unstage(&l->m->device);
    l->seconds = times_now() - began;
    return NULL;
}

static bool allocate(struct model *m, struct fault *f)
{
    size_t bytes = 0;
    for (int i = 0; i < m->weights.count; i++) {
        m->weights.all[i].offset = bytes;
        bytes += aligned(m->weights.all[i].bytes);
    }
    m->bytes[CODA_ARG_WEIGHT] = bytes;
    m->memory[CODA_ARG_WEIGHT] = device_alloc(&m->device, bytes);
    return m->memory[CODA_ARG_WEIGHT] ||
           fault_set(f, "there is no memory for %zu bytes of weights on %s", bytes, device_name(&m->device));
}

struct loading *loading_begin(struct model *m, coda_graph *const *graphs, int count, struct fault *f)
{
    struct loading *l = calloc(1, sizeof *l);
    if (!l) return fault_set(f, "out of memory"), NULL;
    *l = (struct loading){.m = m, .graphs = graphs, .count = count, .random = {.state = m->opt.seed}};
    if (allocate(m, f) && (!pthread_create(&l->thread, NULL, load, l) || fault_set(f, "there is no thread")))
        return l;
    free(l);
    return NULL;
}

bool loading_end(struct loading *l, struct fault *f)
{
    pthread_join(l->thread, NULL);
    bool good = l->good;
    if (!good) *f = l->fault;
    l->m->times.loading = l->seconds;
    random_free(&l->random);
    free(l);
    return good;
}
