/*
 * forks.h -- who holds locks that a child of fork() must find free, and what they guard whole.
 *
 * Each one that watches takes its locks before every fork() of the process, after which parent and child
 * each give them back. A child that only begins another program needs none of it.
 */
#ifndef FORKS_H
#define FORKS_H

struct forks {
    void (*before)(void *owner); /* takes the locks */
    void (*in_parent)(void *owner);
    void (*in_child)(void *owner); /* there is no other thread */
    void *owner;
    struct forks *next, **link;
};
void forks_watch(struct forks *f); /* stays where it is until it is forgotten */
void forks_forget(struct forks *f);

#endif
