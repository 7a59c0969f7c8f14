/*
 * pool.c -- the threads of chat_pool.h, and the list of jobs that they take from.
 */
#include <pthread.h>
#include <stdlib.h>
#include <sys/resource.h>
#include <time.h>

#include "chat_pool.h"

enum { NICE = 5 };

struct worker {
    struct pool *pool;
    pthread_t thread;
    struct job *job; /* at work on it, or NULL */
};

struct pool {
    pthread_mutex_t lock;
    pthread_cond_t work, ended;
    struct job *first, *last; /* those that wait, in their order */
    int waiting, queue;
    struct worker *worker;
    int made, running; /* threads that were started, and that have not ended */
    bool cancelled, quit;
};

static struct job *take_first(struct pool *p)
{
    struct job *j = p->first;
    p->first = j->next;
    if (!p->first) p->last = NULL;
    p->waiting--;
    return j;
}

/* Who waits is told when the pool knows the job no more. */
static void work(struct worker *w)
{
    struct pool *p = w->pool;
    struct job *j = w->job = take_first(p);
    pthread_mutex_unlock(&p->lock);
    j->run(j);
    pthread_mutex_lock(&p->lock);
    w->job = NULL;
    pthread_mutex_unlock(&p->lock);
    j->done(j);
    pthread_mutex_lock(&p->lock);
}

static void *pool_main(void *arg)
{
    struct worker *w = arg;
    struct pool *p = w->pool;
    setpriority(PRIO_PROCESS, 0, getpriority(PRIO_PROCESS, 0) + NICE); /* on Linux of this thread alone */
    pthread_mutex_lock(&p->lock);
    for (;;) {
        while (!p->first && !p->quit) pthread_cond_wait(&p->work, &p->lock);
        if (!p->first) break;
        work(w);
    }
    p->running--;
    pthread_cond_signal(&p->ended);
    pthread_mutex_unlock(&p->lock);
    return NULL;
}

/* ---- Others' threads ---- */

static bool start(struct pool *p, int threads)
{
    for (; p->made < threads; p->made++, p->running++) {
        struct worker *w = &p->worker[p->made];
        w->pool = p;
        if (pthread_create(&w->thread, NULL, pool_main, w)) return false;
    }
    return true;
}

struct pool *pool_new(int threads, int queue)
{
    struct pool *p = calloc(1, sizeof *p);
    pthread_condattr_t by_clock;
    if (!p) return NULL;
    p->queue = queue;
    p->worker = calloc((size_t)threads, sizeof *p->worker);
    pthread_condattr_init(&by_clock);
    pthread_condattr_setclock(&by_clock, CLOCK_MONOTONIC);
    pthread_mutex_init(&p->lock, NULL);
    pthread_cond_init(&p->work, NULL);
    pthread_cond_init(&p->ended, &by_clock);
    pthread_condattr_destroy(&by_clock);
    pthread_mutex_lock(&p->lock);
    bool good = p->worker && start(p, threads);
    pthread_mutex_unlock(&p->lock);
    if (good) return p;
    pool_stop(p, 1e6);
    pool_free(p);
    return NULL;
}

bool pool_full(struct pool *p) { return pool_waiting(p) >= p->queue; }

int pool_waiting(struct pool *p)
{
    pthread_mutex_lock(&p->lock);
    int waiting = p->waiting;
    pthread_mutex_unlock(&p->lock);
    return waiting;
}

static void append(struct pool *p, struct job *j)
{
    j->next = NULL;
    if (p->last) p->last->next = j;
    else p->first = j;
    p->last = j;
    p->waiting++;
    pthread_cond_signal(&p->work);
}

/* Where all threads have ended, nobody else would ever do it. */
void pool_add(struct pool *p, struct job *j)
{
    pthread_mutex_lock(&p->lock);
    bool ended = p->quit && !p->running;
    if (p->cancelled) atomic_store(&j->cancelled, true);
    if (!ended) append(p, j);
    pthread_mutex_unlock(&p->lock);
    if (!ended) return;
    j->run(j);
    j->done(j);
}

void pool_cancel(struct pool *p)
{
    pthread_mutex_lock(&p->lock);
    p->cancelled = true;
    for (struct job *j = p->first; j; j = j->next) atomic_store(&j->cancelled, true);
    for (int i = 0; i < p->made; i++)
        if (p->worker[i].job) atomic_store(&p->worker[i].job->cancelled, true);
    pthread_mutex_unlock(&p->lock);
}

bool pool_stop(struct pool *p, double seconds)
{
    struct timespec until;
    int late = 0;
    if (!p) return true;
    clock_gettime(CLOCK_MONOTONIC, &until);
    until.tv_sec += (time_t)seconds;
    pool_cancel(p);
    pthread_mutex_lock(&p->lock);
    p->quit = true;
    pthread_cond_broadcast(&p->work);
    while (p->running && !late) late = pthread_cond_timedwait(&p->ended, &p->lock, &until);
    bool all = !p->running;
    pthread_mutex_unlock(&p->lock);
    for (; all && p->made; p->made--) pthread_join(p->worker[p->made - 1].thread, NULL);
    return all;
}

void pool_free(struct pool *p)
{
    if (!p) return;
    pthread_mutex_destroy(&p->lock);
    pthread_cond_destroy(&p->work);
    pthread_cond_destroy(&p->ended);
    free(p->worker);
    free(p);
}
