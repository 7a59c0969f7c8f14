/*
 * ranks.h -- a group of ranks: threads of this process that run a graph each, and meet at its exchanges.
 *
 * All ranks of a group make equal exchanges in equal order. At each they meet twice: once all have brought
 * what the others read, and once all have read it.
 */
#ifndef RANKS_H
#define RANKS_H

#include "base.h"

enum { RANKS_MOST = 1024 };

/* What a rank brings to an exchange: x, as `outer` times `extent` times `inner` elements. The ranks must
 * agree in all but x. */
struct offer {
    const char *operation; /* for messages: "all_reduce" */
    int dtype;             /* a coda_dtype; 0 stands for double */
    int64_t outer, extent, inner;
    const void *x;
};

/* A handle for each of so many ranks, in out[ranks]; of the calls that wait, each gives up after so many
 * milliseconds, 0: never. */
coda_status ranks_new(coda_group **out, int ranks, int timeout_ms);
void ranks_free(coda_group *g); /* ranks that wait for this one are told that it has left */

/* Is this pointer the handle of a rank of so many, -1: of any number? The failure begins with the name of
 * the argument. */
coda_status ranks_check(const coda_group *g, const char *name, int64_t ranks);
int ranks_rank(const coda_group *g);
int ranks_count(const coda_group *g);

/* Begins an exchange: returns when all ranks have made their offer, with what each of them brought, in the
 * order of ranks; it may be read until ranks_part. A failure is everybody's, and the group's from then on:
 * ranks that differ, a rank that is late, has left or gave up. */
coda_status ranks_meet(coda_group *g, const struct offer *mine, const void *const **x);
/* Ends it: returns when all ranks have read what they wanted. */
coda_status ranks_part(coda_group *g);

/* No exchange of the group succeeds any more: who waits is told, and so is who comes. */
void ranks_give_up(coda_group *g, const char *why);
coda_status ranks_status(const coda_group *g);

#endif
