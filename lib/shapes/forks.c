/* forks.c -- a list, and the handlers of fork(), which walk it. */
#include "forks.h"

#include "jit.h"

#include <pthread.h>

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER; /* of the list */
static struct forks *first;

static void before(void)
{
    pthread_mutex_lock(&lock);
    for (struct forks *f = first; f; f = f->next) f->before(f->owner);
}

static void in_parent(void)
{
    for (struct forks *f = first; f; f = f->next) f->in_parent(f->owner);
    pthread_mutex_unlock(&lock);
}

static void in_child(void)
{
    for (struct forks *f = first; f; f = f->next) f->in_child(f->owner);
    pthread_mutex_unlock(&lock);
}

/* What is registered last is called first before a fork: jit's lock is taken inside of ours. */
static void watch(void)
{
    jit_watch_forks();
    pthread_atfork(before, in_parent, in_child);
}

void forks_watch(struct forks *f)
{
    static pthread_once_t once = PTHREAD_ONCE_INIT;
    pthread_once(&once, watch);
    pthread_mutex_lock(&lock);
    f->next = first;
    f->link = &first;
    if (first) first->link = &f->next;
    first = f;
    pthread_mutex_unlock(&lock);
}

void forks_forget(struct forks *f)
{
    pthread_mutex_lock(&lock);
    *f->link = f->next;
    if (f->next) f->next->link = f->link;
    pthread_mutex_unlock(&lock);
}
