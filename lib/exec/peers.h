/*
 * peers.h -- the memory in which ranks that have a GPU each leave words for each other: each has an inbox on
 * its own, into which the others' kernels write. It is as primitives/exchange/inbox.cuh has it. Ranks are
 * threads of a process, or processes of a host, which open each other's memory.
 */
#ifndef PEERS_H
#define PEERS_H

#include "exchange.h"
#include "executable.h"

struct call;

/* What the kernels of a rank and the host tell each other, in the host's memory: both write to it. */
struct peer_notes {
    uint32_t over, late, missed, epoch, program;
};
enum { PEER_LATE = 1, PEER_GAVE_UP }; /* what `late` may be */

/* The head of an inbox, as inbox.cuh has it. */
struct peer_head {
    uint32_t epoch[1024], dead, looked, done, told;
    uint32_t late, missed, at, program;
    uint32_t left[EXCHANGE_MOST_RANKS];
};
_Static_assert(sizeof(struct peer_head) == 4 * (1024 + 16), "as large as inbox.cuh says");

/* Bytes of an area, and for what others copy: behind three areas, and the flags of plans. */
struct peers_room {
    int64_t area, copied;
};
enum { EXCHANGE_FLAGS = 4 * EXCHANGE_MOST_RANKS }; /* bytes of a plan's */
static inline uint64_t peers_flags(const struct peers_room *r)
{
    return (uint64_t)(EXCHANGE_HEAD + EXCHANGE_AREAS * r->area);
}

/* The memory of a plan each of whose runs has that of the first one: at[r * gathers + i] is where rank r has
 * what its i-th gather makes. */
struct steady {
    struct steady *next;
    uint64_t digest;
    int gathers;
    char *at[];
};

struct peers {
    struct jit_device gpu;  /* of this rank */
    bool apart;             /* some ranks do not reach others: there are no inboxes */
    struct peers_room room; /* area: 0: there are no inboxes yet */
    char *inbox[EXCHANGE_MOST_RANKS];
    int rank, others; /* ranks of other handles than this process's group has; 0: there are none */
    volatile struct peer_notes *notes;
    struct steady *steady;
};

/* The last part of a kernel's parameters: Company<ranks>, of which the unused inboxes are left out. */
struct peer_company {
    void *notes;
    uint64_t start, area, patience_ns;
    uint32_t rank, program;
};

/* Launches of an exchange by copies: all have read what the one before brought, and all have copied. Then the
 * sum; where nothing is added up, the second meeting is the end, or what follows a copy from the inbox. */
enum copying_launch { COPYING_FREE, COPYING_COPIED, COPYING_SUM, COPYING_END, COPYING_LEFT };

/* Behind that: Copies of copies.cuh. */
struct peer_copies {
    uint64_t flags, terms, stride;
    uint32_t launch;
};

/* What each rank says, `bytes` of it, in the order of ranks, on all of them: carrier_tell. */
typedef coda_status peers_meeting(const struct call *c, coda_group *g, const char *operation,
                                  const void *mine, size_t bytes, void *all);
/* Inboxes with so much room at least, made where there are none: then all ranks meet. The old ones
 * stay until the group's last rank is freed, as graphs that were captured may use them. */
coda_status peers_reserve(const struct call *c, coda_group *g, struct peers *p, struct peers_room room,
                          const char *operation, peers_meeting *meet);
/* steady.c: the ranks, which agree on the plan, tell each other where they have what they gather; ahead of
 * each run, has this one still? And where it is, NULL: the other one copies it from memory of the group's. */
coda_status steady_tell(const struct call *c, coda_group *g, struct peers *p);
coda_status steady_check(const struct call *c);
void steady_find(struct call *c, const struct peers *p);
char *steady_at(const struct call *c, int index, int rank);
/* Did a rank not come to an exchange of this one's? */
coda_status peers_status(const struct peers *p, int timeout_ms);
void peers_forget(struct peers *p);     /* frees `steady` */
void peers_abort(struct peers *p);      /* ends all waits of its kernels, from any thread; */
void peers_tell(const struct peers *p); /* those of ranks in other processes, then */

#endif
