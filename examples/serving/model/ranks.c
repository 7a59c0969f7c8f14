/*
 * ranks.c -- the threads of ranks.h.
 */
#include <pthread.h>
#include <stdlib.h>
#include <string.h>

#include "ranks.h"

struct rank {
    struct ranks *all;
    pthread_t thread;
    struct options o;
    struct fault fault;
};

struct ranks {
    pthread_mutex_t lock;
    pthread_cond_t changed;
    ranks_work *work;
    int count, begun; /* the others */
    bool told, over;  /* the first has told them; it has failed */
    struct prompt prompt;
    int failed; /* the rank that was the first to fail; -1: none */
    coda_group *first;
    struct rank rank[];
};

static void fail_rank(struct ranks *r, int number, coda_group *g)
{
    pthread_mutex_lock(&r->lock);
    if (r->failed < 0) r->failed = number;
    pthread_mutex_unlock(&r->lock);
    coda_group_abort(g);
}

static void *run(void *context)
{
    struct rank *one = context;
    struct ranks *r = one->all;
    if (!r->work(&one->o, r, &one->fault)) fail_rank(r, (int)(one - r->rank) + 1, one->o.open.group);
    return NULL;
}

/* Each GPU of theirs, or none of them: who asks for none gets one if the first is there. */
static void choose_device(struct options *o)
{
    struct device d;
    if (o->open.device != CODA_DEVICE_NONE) return;
    o->open.device = device_open(&d, CODA_DEVICE_NONE) && d.on_gpu ? CODA_DEVICE_GPU : CODA_DEVICE_CPU;
}

static struct ranks *ranks_new(int count, ranks_work *work)
{
    struct ranks *r = calloc(1, sizeof *r + sizeof *r->rank * (size_t)count);
    if (!r) return NULL;
    r->work = work, r->count = count, r->failed = -1;
    pthread_mutex_init(&r->lock, NULL);
    pthread_cond_init(&r->changed, NULL);
    return r;
}

struct ranks *ranks_begin(struct options *o, ranks_work *work, struct fault *f)
{
    coda_group *group[MOST_OPTION_RANKS];
    coda_group_options opt = CODA_GROUP_OPTIONS_INIT;
    opt.timeout_ms = -1; /* who fails ends the others; who plans may take long */
    if (coda_group_local(group, o->open.ranks, &opt)) return fault_set(f, "%s", coda_error()), NULL;
    struct ranks *r = ranks_new(o->open.ranks - 1, work);
    choose_device(o);
    o->open.group = group[0];
    for (int i = 0; r && i < r->count; i++) {
        r->rank[i] = (struct rank){.all = r, .o = *o};
        r->rank[i].o.open.group = group[i + 1];
        r->rank[i].o.open.progress = NULL;
    }
    for (int i = r ? r->count : 0; i < o->open.ranks - 1; i++) coda_group_free(group[i + 1]);
    if (!r) return fault_set(f, "out of memory"), NULL;
    r->first = group[0];
    while (r->begun < r->count && !pthread_create(&r->rank[r->begun].thread, NULL, run, &r->rank[r->begun]))
        r->begun++;
    if (r->begun == r->count) return r;
    ranks_end(r, false, &(struct fault){{0}});
    return fault_set(f, "there are no threads for %d ranks", o->open.ranks), NULL;
}

void ranks_tell(struct ranks *r, const struct prompt *p)
{
    pthread_mutex_lock(&r->lock);
    r->prompt = *p;
    r->told = true;
    pthread_cond_broadcast(&r->changed);
    pthread_mutex_unlock(&r->lock);
}

bool ranks_hear(struct ranks *r, struct prompt *out, struct fault *f)
{
    pthread_mutex_lock(&r->lock);
    while (!r->told && !r->over) pthread_cond_wait(&r->changed, &r->lock);
    bool good = !r->over;
    *out = r->prompt;
    pthread_mutex_unlock(&r->lock);
    return good || fault_set(f, "rank 0 has failed");
}

bool ranks_end(struct ranks *r, bool good, struct fault *f)
{
    if (!r) return good;
    if (!good) {
        fail_rank(r, 0, r->first);
        pthread_mutex_lock(&r->lock);
        r->over = true;
        pthread_cond_broadcast(&r->changed);
        pthread_mutex_unlock(&r->lock);
    }
    for (int i = 0; i < r->begun; i++) pthread_join(r->rank[i].thread, NULL);
    int failed = r->failed;
    if (failed > 0) fault_set(f, "rank %d: %.200s", failed, r->rank[failed - 1].fault.text);
    for (int i = 0; i < r->count; i++) coda_group_free(r->rank[i].o.open.group);
    pthread_cond_destroy(&r->changed);
    pthread_mutex_destroy(&r->lock);
    free(r);
    return failed < 0;
}
