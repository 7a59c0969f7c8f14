/*
 * company.h -- what the files of this room share: a group's ranks, and how it has ended.
 */
#ifndef COMPANY_H
#define COMPANY_H

#include "ranks.h"

#include <pthread.h>

/* What the others know of a rank. */
struct seat {
    struct offer offer;
    uint64_t meetings; /* barriers that it has come to */
    uint64_t runs;     /* that it has begun */
    bool reads;        /* what the others have brought */
    bool left;
    const struct carrier *carrier;
    void *own; /* the carrier's; NULL: there is none */
};

/* A run, as the rank that was the first to begin it said. */
struct begun {
    uint64_t number; /* from 1 on */
    uint64_t digest;
    const char *operation; /* its first exchange */
    int rank;
    bool agreed;
};
enum { RUNS_KEPT = 64 }; /* by which the first rank may be ahead of the last one and be compared */

/* What goes with the group. */
struct left {
    struct left *next;
    void (*release)(void *);
    void *what;
};

struct company {
    pthread_mutex_t lock;
    pthread_cond_t changed;
    int ranks, handles, timeout_ms;
    int here;           /* ranks that have come to the next barrier */
    uint64_t barriers;  /* behind which all ranks are: two for each exchange */
    uint64_t beside;    /* so many of them are of what is no exchange */
    bool elsewhere;     /* the other ranks are */
    bool aborted;       /* the carriers are */
    coda_status status; /* of all exchanges from now on */
    char why[256];
    const void **x; /* what each rank brought */
    bool captured;  /* some run was: runs are in an order that is not known here */
    struct begun begun[RUNS_KEPT];
    struct left *left;
    struct seat seat[];
};

struct coda_group {
    const struct coda_group *self; /* only a handle that is alive points to itself */
    struct company *company;
    int rank;
    uint64_t *agreed; /* digests of plans */
    int agreements;
};

/* ---- The lock is held ---- */

/* The group has ended; its first reason stays. */
void company_end(struct company *c, coda_status status, const char *format, ...) PRINTF(3, 4);
/* The same, as rank 0 and rank r differ in an exchange; NULL: it has no more. */
void company_end_of_two(struct company *c, unsigned long long number, const struct offer *of_0, int r,
                        const struct offer *of_r);
/* How it has ended, if it has, as this thread's failure; what carriers have under way ends, too. */
coda_status company_told(struct company *c);

/* The same operation, of the same elements? */
bool offers_agree(const struct offer *a, const struct offer *b);

#endif
