/*
 * shapes_state.h -- what shapes.c and shapes_take.c share: the plans of a graph with symbols, and their lock.
 */
#ifndef SHAPES_STATE_H
#define SHAPES_STATE_H

#include "background.h"
#include "family.h"
#include "forks.h"
#include "shape_list.h"

struct shapes {
    struct family family;
    int most;             /* plans that are kept */
    int threads;          /* that compile in the background */
    struct forks forks;   /* so that a child of fork() finds all this whole, and the lock free */
    pthread_mutex_t lock; /* of all that follows */
    pthread_cond_t made;  /* or failed to be; or somebody begins or ends to compile */
    int compiling;        /* threads that may; none once it is sealed */
    bool warmed;          /* best plans were made ahead of runs */
    struct background background;
    bool sealed;
    struct shape_list list;
    int64_t runs, runs_base, planned, dropped, improved, failed;
};

/* Unlocks, and frees what was dropped. */
void shapes_unlock(struct shapes *s);

/* Do runs of some shapes get kernels that serve any shape? */
bool shapes_have_base(const struct shapes *s);

/* Whoever may compile says so, under the lock, so that the seal waits for it; false: the plan is sealed. */
bool shapes_begin_to_compile(struct shapes *s);
void shapes_end_to_compile(struct shapes *s);

/* What the thread in the background does: a shape that runs with other kernels gets its own. `plan` is the
 * plan of all shapes. */
void shapes_improve_aside(void *plan, const int64_t *dims);

#endif
