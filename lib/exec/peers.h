/*
 * peers.h -- the memory in which ranks of a process that have a GPU each leave words for each other: each has
 * an inbox on its own, into which the others' kernels write. It is as primitives/exchange/inbox.cuh has it.
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

struct peers {
    struct jit_device gpu; /* of this rank */
    bool apart;            /* some ranks do not reach others: there are no inboxes */
    int64_t area;          /* bytes of an area; 0: there are no inboxes yet */
    char *inbox[EXCHANGE_MOST_RANKS];
    volatile struct peer_notes *notes;
};

/* The last part of a kernel's parameters: Company<ranks>, of which the unused inboxes are left out. */
struct peer_company {
    void *notes;
    uint64_t start, area, patience_ns;
    uint32_t rank, program;
};

/* Inboxes with areas of so many bytes at least, made where there are none: then all ranks meet. The old ones
 * stay until the group's last rank is freed, as graphs that were captured may use them. */
coda_status peers_reserve(const struct call *c, coda_group *g, struct peers *p, int64_t area,
                          const char *operation);
/* Did a rank not come to an exchange of this one's? */
coda_status peers_status(const struct peers *p, int timeout_ms);
void peers_abort(struct peers *p); /* ends all waits of its kernels, from any thread */

#endif
