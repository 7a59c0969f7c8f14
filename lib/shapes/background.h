/*
 * background.h -- a thread that makes the best plans of shapes that run with others. Its plan's shapes.c
 * calls all of this with its lock held.
 */
#ifndef BACKGROUND_H
#define BACKGROUND_H

#include "base.h"

#include <pthread.h>
#include <signal.h>
#include <stdatomic.h>

struct background {
    pthread_mutex_t *lock; /* its owner's */
    pthread_cond_t wanted;
    pthread_t thread;
    bool started;
    atomic_bool stops; /* whoever is at work may read it without the lock */
    int dims;          /* of a shape */
    struct errand *first, *last;
    int waiting;                                   /* and at work */
    void (*run)(void *owner, const int64_t *dims); /* without the lock */
    void *owner;
};

void background_open(struct background *b, pthread_mutex_t *lock, int dims,
                     void (*run)(void *owner, const int64_t *dims), void *owner);
/* False: out of memory, or no thread could be started, or very many wait. */
bool background_add(struct background *b, const int64_t *dims);
void background_drop(struct background *b); /* what waits */
/* In a child of fork(), which does not have the thread: what there is to do is gone. */
void background_orphan(struct background *b);
/* Waits for what is at work, which may see that it stops; without the lock. */
void background_close(struct background *b);

#endif
