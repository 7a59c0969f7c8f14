/*
 * ranks.h -- a group of ranks: threads of this process that run a graph each, and meet at its exchanges.
 *
 * All ranks of a group make equal exchanges in equal order. At each they meet twice: once all have brought
 * what the others read, and once all have read it. Where their memory is a GPU's a carrier exchanges it, and
 * they meet only to agree on what they are going to do. Of a group whose other ranks are no threads of this
 * process nobody meets here: all that is known of them comes by its carrier.
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
    bool beside; /* no exchange, but what the ranks agree on ahead of the one that it names */
};

/* Who exchanges a rank's memory where no other rank can read it: a library's communicator. What went wrong is
 * a failure, as of any call. */
struct carrier {
    coda_status (*status)(void *own, int timeout_ms); /* has it failed by itself, or is it late? */
    void (*abort)(void *own);                         /* frees who waits for it, from any thread */
    void (*free)(void *own);
};

/* A handle for each of so many ranks, in out[ranks]; of the calls that wait, each gives up after so many
 * milliseconds, 0: never. */
coda_status ranks_new(coda_group **out, int ranks, int timeout_ms);
/* The handle of one rank, whose others are elsewhere. It owns `own`. */
coda_status ranks_new_elsewhere(coda_group **out, int rank, int ranks, int timeout_ms,
                                const struct carrier *carrier, void *own);
void ranks_free(coda_group *g); /* ranks that wait for this one are told that it has left */

/* Is this pointer the handle of a rank of so many, -1: of any number? The failure begins with the name of
 * the argument. */
coda_status ranks_check(const coda_group *g, const char *name, int64_t ranks);
int ranks_rank(const coda_group *g);
int ranks_count(const coda_group *g);
int ranks_timeout(const coda_group *g); /* milliseconds; 0: none */
bool ranks_are_elsewhere(const coda_group *g);

/* The rank's carrier from now on, and what it has. */
void ranks_carry(coda_group *g, const struct carrier *carrier, void *own);
void *ranks_carried(const coda_group *g); /* NULL: it has none */

/* Is called with `what` once the last rank's handle is freed; false: memory ran out. */
bool ranks_leave_behind(coda_group *g, void (*release)(void *), void *what);

/* Begins an exchange: returns when all ranks have made their offer, with what each of them brought, in the
 * order of ranks; it may be read until ranks_part, which is called then, whatever happens. A failure is
 * everybody's, and the group's from then on: ranks that differ, a rank that is late, has left or gave up, or
 * whose handle two threads bring. Behind a failure, of this call or of ranks_part, nobody reads mine->x. */
coda_status ranks_meet(coda_group *g, const struct offer *mine, const void *const **x);
/* Ends it: returns when all ranks have read what they wanted. */
coda_status ranks_part(coda_group *g);

/* A carrier is about to exchange something: fails if the group has, or a rank has left. */
coda_status ranks_begin(coda_group *g, const char *operation);

/* What a plan is going to do, which all ranks compare before they begin with it. */
struct agenda {
    uint64_t digest;              /* of all of it; */
    const struct offer *exchange; /* one at least: they say where two differ, if they do there */
    int exchanges;
};
/* Has this rank agreed on it with the others? */
bool ranks_agreed(const coda_group *g, uint64_t digest);
/* Meets them, and fails on all ranks alike if they differ. */
coda_status ranks_agree(coda_group *g, const struct agenda *mine);
/* Notes that they do not differ; false: memory ran out. */
bool ranks_note_agreed(coda_group *g, uint64_t digest);
/* A rank begins a run, and waits for nobody: fails if another one began a run of another plan there, and one
 * of them will not meet the others to compare it. Where runs are captured nobody knows their order. */
coda_status ranks_follow(coda_group *g, const struct agenda *mine, bool captured);

/* No exchange of the group succeeds any more: who waits is told, and so is who comes. */
void ranks_give_up(coda_group *g, const char *why);
/* The same, with a reason that is all ranks'. */
void ranks_end(coda_group *g, coda_status status, const char *why);
coda_status ranks_status(const coda_group *g);

#endif
