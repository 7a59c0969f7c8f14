/*
 * ranks.h -- a program's ranks: threads that do the same with a model each, as cut.h shares one out. The
 * first is the caller's own thread, which tells the others what there is to do; what one has failed at ends
 * the others, too.
 */
#ifndef RANKS_H
#define RANKS_H

#include "model.h"

enum { MOST_RANKS = 64 };

struct ranks;

/* One of the others. */
struct rank {
    struct ranks *all;
    coda_group *group; /* its handle */
    int heard;         /* of what the first has told, so far */
};

/* What each of the others does; false, and the fault, if it has failed. */
typedef bool ranks_work(struct rank *one, void *context, struct fault *f);

/* Begins them, `count` with the first, whose handle of the group `first` becomes: the caller's to free behind
 * ranks_end. NULL, and the fault, if that cannot be. */
struct ranks *ranks_begin(int count, ranks_work *work, void *context, coda_group **first, struct fault *f);
/* All of them on GPUs, or none: who asks for CODA_DEVICE_NONE gets a GPU if the first is there. */
coda_device ranks_device(coda_device wanted);

/* The first tells the others something more, once all have done what it told before, or one has failed. */
void ranks_tell(struct ranks *r, const void *what);
/* Waits for what one of the others has not heard yet, and has done what it had: NULL if there is no more, and
 * a fault if the first has failed. */
const void *ranks_hear(struct rank *one, struct fault *f);
/* The first waits until the others have done all that it told; false, and the fault, if one has failed. */
bool ranks_wait(struct ranks *r, struct fault *f);

/* Waits for the others, who stop if the first was no `good`. Were all good? Else the fault of the rank that
 * was the first to fail. NULL gives `good`. */
bool ranks_end(struct ranks *r, bool good, struct fault *f);

#endif
