/*
 * ranks.c -- the threads of ranks.h.
 */
#include <pthread.h>
#include <stdlib.h>
#include <string.h>

#include "ranks.h"

struct other {
    struct rank rank;
    pthread_t thread;
    struct fault fault;
};

struct ranks {
    pthread_mutex_t lock;
    pthread_cond_t changed;
    ranks_work *work;
    void *context;
    int count, begun; /* the others */
    int told;         /* what the first has told */
    int idle, ended;  /* who of the others waits for more; who has done all it wants to do */
    bool last, over;  /* there is no more; the first has failed */
    const void *what;
    int failed; /* the rank that was the first to fail; -1: none */
    coda_group *first;
    struct other other[];
};

/* The group has ended by the time that anybody sees who failed. */
static void fail_rank(struct ranks *r, int number, coda_group *g)
{
    pthread_mutex_lock(&r->lock);
    if (r->failed < 0) r->failed = number;
    coda_group_abort(g);
    pthread_cond_broadcast(&r->changed);
    pthread_mutex_unlock(&r->lock);
}

static void *run(void *context)
{
    struct other *one = context;
    struct ranks *r = one->rank.all;
    if (!r->work(&one->rank, r->context, &one->fault))
        fail_rank(r, (int)(one - r->other) + 1, one->rank.group);
    pthread_mutex_lock(&r->lock);
    r->ended++;
    pthread_cond_broadcast(&r->changed);
    pthread_mutex_unlock(&r->lock);
    return NULL;
}

coda_device ranks_device(coda_device wanted)
{
    struct device d;
    if (wanted != CODA_DEVICE_NONE) return wanted;
    return device_open(&d, CODA_DEVICE_NONE) && d.on_gpu ? CODA_DEVICE_GPU : CODA_DEVICE_CPU;
}

static struct ranks *ranks_new(int count, ranks_work *work, void *context)
{
    struct ranks *r = calloc(1, sizeof *r + sizeof *r->other * (size_t)count);
    if (!r) return NULL;
    r->work = work, r->context = context, r->count = count, r->failed = -1;
    pthread_mutex_init(&r->lock, NULL);
    pthread_cond_init(&r->changed, NULL);
    return r;
}

struct ranks *ranks_begin(int count, ranks_work *work, void *context, coda_group **first, struct fault *f)
{
    coda_group *group[MOST_RANKS];
    coda_group_options opt = CODA_GROUP_OPTIONS_INIT;
    opt.timeout_ms = -1; /* who fails ends the others; who plans may take long */
    if (coda_group_local(group, count, &opt)) return fault_set(f, "%s", coda_error()), NULL;
    struct ranks *r = ranks_new(count - 1, work, context);
    *first = group[0];
    for (int i = 0; r && i < r->count; i++) r->other[i].rank = (struct rank){r, group[i + 1], 0};
    for (int i = r ? r->count : 0; i < count - 1; i++) coda_group_free(group[i + 1]);
    if (!r) return fault_set(f, "out of memory"), NULL;
    r->first = group[0];
    while (r->begun < r->count && !pthread_create(&r->other[r->begun].thread, NULL, run, &r->other[r->begun]))
        r->begun++;
    if (r->begun == r->count) return r;
    ranks_end(r, false, &(struct fault){{0}});
    return fault_set(f, "there are no threads for %d ranks", count), NULL;
}

/* ---- What there is to do ---- */

/* With the lock. */
static void wait_idle(struct ranks *r)
{
    while (r->idle + r->ended < r->count && r->failed < 0) pthread_cond_wait(&r->changed, &r->lock);
}

static bool all_good(const struct ranks *r, struct fault *f)
{
    int failed = r->failed;
    if (failed > 0) fault_set(f, "rank %d: %.200s", failed, r->other[failed - 1].fault.text);
    return failed < 0;
}

void ranks_tell(struct ranks *r, const void *what)
{
    pthread_mutex_lock(&r->lock);
    wait_idle(r);
    r->what = what;
    r->idle = 0;
    r->told++;
    pthread_cond_broadcast(&r->changed);
    pthread_mutex_unlock(&r->lock);
}

const void *ranks_hear(struct rank *one, struct fault *f)
{
    struct ranks *r = one->all;
    const void *what = NULL;
    pthread_mutex_lock(&r->lock);
    r->idle++;
    pthread_cond_broadcast(&r->changed);
    while (one->heard == r->told && !r->last && !r->over) pthread_cond_wait(&r->changed, &r->lock);
    if (one->heard < r->told && !r->over) one->heard++, what = r->what;
    bool good = !r->over;
    pthread_mutex_unlock(&r->lock);
    if (!good) fault_set(f, "rank 0 has failed");
    return what;
}

bool ranks_wait(struct ranks *r, struct fault *f)
{
    pthread_mutex_lock(&r->lock);
    wait_idle(r);
    bool good = all_good(r, f);
    pthread_mutex_unlock(&r->lock);
    return good;
}

bool ranks_end(struct ranks *r, bool good, struct fault *f)
{
    if (!r) return good;
    if (!good) fail_rank(r, 0, r->first);
    pthread_mutex_lock(&r->lock);
    r->last = true;
    r->over = !good;
    pthread_cond_broadcast(&r->changed);
    pthread_mutex_unlock(&r->lock);
    for (int i = 0; i < r->begun; i++) pthread_join(r->other[i].thread, NULL);
    good = all_good(r, f);
    for (int i = 0; i < r->count; i++) coda_group_free(r->other[i].rank.group);
    pthread_cond_destroy(&r->changed);
    pthread_mutex_destroy(&r->lock);
    free(r);
    return good;
}
