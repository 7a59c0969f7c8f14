/*
 * chat_pool.h -- threads for work whose time a client decides: bodies that are parsed, templates, tokens,
 * answers as JSON. It must not be done on libmicrohttpd's thread, where all others would wait for it.
 */
#ifndef CHAT_POOL_H
#define CHAT_POOL_H

#include <stdatomic.h>
#include <stdbool.h>

struct job {
    void (*run)(struct job *j);  /* the work */
    void (*done)(struct job *j); /* tells who waits for it: the job is theirs again */
    atomic_bool cancelled;       /* nobody waits any more: `run` asks now and then; both are still called */
    struct job *next;            /* the pool's */
};

struct pool;

/* NULL: no memory, or no threads. They yield to steps and to libmicrohttpd's thread. */
struct pool *pool_new(int threads, int queue);
/* Do as many jobs wait for a thread as may? */
bool pool_full(struct pool *p);
/* Whether it is full or not: what must be done is not refused. Jobs are begun in their order. One that comes
 * when the pool has stopped is done at once, cancelled, by who adds it. */
void pool_add(struct pool *p, struct job *j);
int pool_waiting(struct pool *p);
/* Cancels what is there and what comes. */
void pool_cancel(struct pool *p);
/* Cancels, and ends the threads once all jobs are done. false: some are not after so many seconds, and the
 * pool must stay. */
bool pool_stop(struct pool *p, double seconds);
void pool_free(struct pool *p); /* one that has stopped, or NULL */

#endif
