/* background.c -- one thread, started when there is something to do, and a queue. */
#include "background.h"
#include "jit.h"

#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/syscall.h>
#include <unistd.h>

enum { NICENESS = 10, MOST_WAITING = 1024 };

struct errand {
    struct errand *next;
    int64_t dims[];
};

void background_open(struct background *b, pthread_mutex_t *lock, int dims,
                     void (*run)(void *owner, const int64_t *dims), void *owner)
{
    *b = (struct background){.lock = lock, .dims = dims, .run = run, .owner = owner};
    pthread_cond_init(&b->wanted, NULL);
}

static struct errand *pop(struct background *b)
{
    struct errand *e = b->first;
    b->first = e->next;
    if (!b->first) b->last = NULL;
    return e;
}

static void *work(void *ctx)
{
    struct background *b = ctx;
    setpriority(PRIO_PROCESS, (id_t)syscall(SYS_gettid), NICENESS);
    pthread_mutex_lock(b->lock);
    while (!b->stops) {
        if (!b->first) {
            pthread_cond_wait(&b->wanted, b->lock);
            continue;
        }
        struct errand *e = pop(b);
        pthread_mutex_unlock(b->lock);
        b->run(b->owner, e->dims);
        free(e);
        pthread_mutex_lock(b->lock);
        b->waiting--;
    }
    pthread_mutex_unlock(b->lock);
    return NULL;
}

bool background_add(struct background *b, const int64_t *dims)
{
    size_t bytes = sizeof *dims * (size_t)b->dims;
    if (b->waiting >= MOST_WAITING) return false;
    struct errand *e = malloc(sizeof *e + bytes);
    if (!e || (!b->started && !(b->started = jit_start_thread(&b->thread, work, b)))) return free(e), false;
    e->next = NULL;
    memcpy(e->dims, dims, bytes);
    *(b->last ? &b->last->next : &b->first) = e;
    b->last = e;
    b->waiting++;
    pthread_cond_signal(&b->wanted);
    return true;
}

void background_drop(struct background *b)
{
    while (b->first) free(pop(b)), b->waiting--;
}

void background_orphan(struct background *b)
{
    background_drop(b);
    pthread_cond_init(&b->wanted, NULL);
    b->started = false;
    b->waiting = 0; /* what was at work, too */
}

void background_close(struct background *b)
{
    pthread_mutex_lock(b->lock);
    background_drop(b);
    b->stops = true;
    pthread_cond_signal(&b->wanted);
    pthread_mutex_unlock(b->lock);
    if (b->started) pthread_join(b->thread, NULL);
    pthread_cond_destroy(&b->wanted);
}
