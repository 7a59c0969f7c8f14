/*
 * workers.c -- threads that stay, for the loops of runs: starting one takes longer than most of these loops.
 *
 * A loop lies on its caller's stack, in a list while workers may still join it; the caller works, too, and
 * leaves when the last item is done, so a loop ends even where no worker has time for it. There are as many
 * workers as the largest loop wanted, and they wait on a condition. Signals are the program's (jit/thread.c).
 *
 * At exit() and dlclose() they are ended and waited for, since the code that they run goes. A child of fork()
 * has none of them and starts its own; the lock may have been another thread's, and begins anew.
 */
#include "workers.h"

#include "jit.h"

#include <stdatomic.h>

struct loop {
    int64_t n;
    void (*fn)(void *, int64_t);
    void *ctx;
    atomic_llong next;
    int places; /* for workers that have not come yet */
    int inside; /* workers */
    struct loop *link;
};

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER; /* of all that follows, and the loops' places */
static pthread_cond_t work = PTHREAD_COND_INITIALIZER, left = PTHREAD_COND_INITIALIZER;
static struct loop *open_loops;
static pthread_t worker[PARALLEL_MOST];
static int workers;
static bool ending;

static void take_items(struct loop *l)
{
    for (int64_t i; (i = atomic_fetch_add(&l->next, 1)) < l->n;) l->fn(l->ctx, i);
}

/* ---- A worker ---- */

static struct loop *loop_with_a_place(void)
{
    struct loop *l = open_loops;
    while (l && l->places == 0) l = l->link;
    return l;
}

static void *serve(void *unused)
{
    pthread_mutex_lock(&lock);
    while (!ending) {
        struct loop *l = loop_with_a_place();
        if (!l) {
            pthread_cond_wait(&work, &lock);
            continue;
        }
        l->places--, l->inside++;
        pthread_mutex_unlock(&lock);
        take_items(l);
        pthread_mutex_lock(&lock);
        if (--l->inside == 0) pthread_cond_broadcast(&left);
    }
    pthread_mutex_unlock(&lock);
    return unused;
}

/* ---- All of them ---- */

/* The lock and the conditions may be in any state; so may the list. */
static void begin_anew(void)
{
    lock = (pthread_mutex_t)PTHREAD_MUTEX_INITIALIZER;
    work = left = (pthread_cond_t)PTHREAD_COND_INITIALIZER;
    open_loops = NULL;
    workers = 0;
}

static void watch_forks(void) { pthread_atfork(NULL, NULL, begin_anew); }

/* With the lock: until there are so many, or the system has no more. */
static void hire(int wanted)
{
    while (!ending && workers < wanted && jit_start_thread(&worker[workers], serve, NULL)) workers++;
}

/* One that calls exit() itself does not wait for itself. */
__attribute__((destructor)) static void end_all(void)
{
    pthread_mutex_lock(&lock);
    int n = workers;
    ending = true, workers = 0;
    pthread_cond_broadcast(&work);
    pthread_mutex_unlock(&lock);
    for (int i = 0; i < n; i++)
        if (!pthread_equal(worker[i], pthread_self())) pthread_join(worker[i], NULL);
}

/* ---- A loop ---- */

/* A child must begin anew whenever the lock has been another thread's: forks are watched before it is taken
 * for the first time. */
static void open_to(struct loop *l, int places)
{
    static pthread_once_t once = PTHREAD_ONCE_INIT;
    pthread_once(&once, watch_forks);
    pthread_mutex_lock(&lock);
    hire(places);
    l->places = MIN(places, workers);
    l->link = open_loops;
    open_loops = l;
    for (int i = 0; i < l->places; i++) pthread_cond_signal(&work);
    pthread_mutex_unlock(&lock);
}

static void close_loop(struct loop *l)
{
    pthread_mutex_lock(&lock);
    struct loop **at = &open_loops;
    while (*at != l) at = &(*at)->link;
    *at = l->link;
    while (l->inside) pthread_cond_wait(&left, &lock);
    pthread_mutex_unlock(&lock);
}

void workers_run(int64_t n, int threads, void (*fn)(void *ctx, int64_t i), void *ctx)
{
    struct loop l = {.n = n, .fn = fn, .ctx = ctx};
    int places = (int)MIN(n, MIN(threads, PARALLEL_MOST)) - 1;
    if (places > 0) open_to(&l, places);
    take_items(&l);
    if (places > 0) close_loop(&l);
}
