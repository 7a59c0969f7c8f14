/*
 * sums.h -- ranks that exchange drawn numbers on a GPU each, or several on one where there are fewer: each
 * kind of exchange, one behind the other. Every element is compared with a sum in fp32, in the order of
 * ranks, rounded once; ranks come late, at random.
 */
#ifndef SUMS_H
#define SUMS_H

#include <pthread.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "coda.h"

enum { MOST_RANKS = 8, SUMS = 8, SUM_ARGS = 1 + 2 * SUMS, LONG_MS = 300000, SHORT_MS = 400 };

extern int64_t sums_times; /* so many times as many columns; 1 */

/* How many GPUs there are; ranks beyond them share these. Rank r's is the thread's by the second one. */
int sums_find_contexts(void);
bool sums_use(int rank);

struct rank {
    int number, ranks, runs;
    bool captures;                           /* the first run of each plan; all others are replays */
    bool two;                                /* runs are of two plans in turn, whose exchanges are equal */
    int swaps_at;                            /* from this run on it takes the other plan; 0: never */
    uint64_t seed;                           /* of numbers and delays */
    bool (*before)(struct rank *r, int run); /* or NULL; false: it comes to no further run */
    void (*behind)(struct rank *r, int run); /* or NULL */
    void *context;
    pthread_barrier_t *all; /* or NULL */
    coda_group *group;
    coda_plan *plan[2];
    void *captured[2];
    void *args[SUM_ARGS], *work, *stream;
    size_t bytes[SUM_ARGS];
    int64_t bad;        /* elements */
    uint64_t first_bad; /* run */
    bool gone;          /* before() said so */
    coda_status status; /* of the last coda_run */
    double seconds;     /* that the run which failed took */
    char error[1024];   /* the first one */
};

/* Ranks of a new group, in threads; one at a time may ask what `say` notes. */
bool ranks_make(struct rank *r, int ranks, int timeout_ms);
void ranks_run(struct rank *r, int ranks);
void *rank_live(void *rank); /* one of them, in the thread that calls; the group is there */
bool rank_say(struct rank *r, const char *what); /* false */
void rank_free_plans(struct rank *r);
void rank_free(struct rank *r);

#endif
