/* parallel.c -- a loop over independent items on all cores, for the host evaluators. */
#include "base.h"

#include <pthread.h>
#include <stdatomic.h>
#include <unistd.h>

enum { MOST_THREADS = 64 };

struct job {
    int64_t n;
    void (*fn)(void *, int64_t);
    void *ctx;
    atomic_llong next;
};

static void *work(void *arg)
{
    struct job *j = arg;
    for (int64_t i; (i = atomic_fetch_add(&j->next, 1)) < j->n;) j->fn(j->ctx, i);
    return NULL;
}

void parallel_for(int64_t n, void (*fn)(void *ctx, int64_t i), void *ctx)
{
    struct job j = {.n = n, .fn = fn, .ctx = ctx};
    pthread_t thread[MOST_THREADS];
    long cores = sysconf(_SC_NPROCESSORS_ONLN);
    int threads = (int)MIN(n, MIN(cores, MOST_THREADS)) - 1, started = 0;
    while (started < threads && pthread_create(&thread[started], NULL, work, &j) == 0) started++;
    work(&j);
    for (int i = 0; i < started; i++) pthread_join(thread[i], NULL);
}
