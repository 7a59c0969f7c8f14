/*
 * inboxes.h -- an inbox of this rank's, and where those of the others are: which it opens if they are of
 * other processes, and gives back.
 */
#ifndef INBOXES_H
#define INBOXES_H

#include "peers.h"

/* By what others reach an inbox. */
struct introduced {
    uint64_t process, host;
    int number;            /* of the process */
    struct jit_device gpu; /* for those of this process */
    char *memory;
    bool shared; /* there is a handle */
    char handle[JIT_SHARED];
};

struct inbox {
    struct inbox *next; /* of those that others may still use */
    struct jit_device gpu;
    int rank, ranks;
    bool elsewhere; /* the others are of groups of their own */
    bool apart;     /* nobody has written to it */
    void *memory, *notes;
    struct {
        char *memory;
        bool opened;
        int process; /* its number, of another one; 0: it is this one's */
    } of[EXCHANGE_MOST_RANKS];
};

struct inbox *inbox_new(const struct jit_device *gpu, int rank, int ranks, bool elsewhere);
/* All calls from here on where its device is current. */
coda_status inbox_allocate(struct inbox *i, const struct peers_room *room, bool notes, char *err);
void inbox_introduce(const struct inbox *i, struct introduced *out);
/* Finds where rank r's lies; *can: kernels of this rank reach it. */
coda_status inbox_reach(struct inbox *i, int r, const struct introduced *own, const struct introduced *other,
                        bool *can, char *err);
/* Ends the waits of the rank whose inbox this is, as this rank gave up. */
void inbox_end(char *memory, uint32_t rank);
/* Gives up the inbox of a group that is freed, by any thread. Memory that others may still write to is freed
 * once they have given it back, or their processes are gone. */
void inbox_release(void *inbox);

#endif
