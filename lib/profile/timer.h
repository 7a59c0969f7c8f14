/* timer.h -- runs of a plan under a clock, launch by launch and as a whole: between profile.c, timer.c and
 * rates.c. */
#ifndef TIMER_H
#define TIMER_H

#include "profile.h"

struct timer {
    const struct profiled *run;
    coda_run_options options; /* threads */
    int launches;             /* of a run */
    int at;                   /* launches of the present run that have been counted */
    double *ended;            /* CPU device: us, launches + 1 moments */
    char *swept;              /* two halves of device memory, or of host memory, ... */
    size_t half;              /* ... of so many bytes; 0: there was no room */
    int sweeps;               /* copies from one half to the other before a run */
    struct jit_clock *clock;  /* of the GPU, as what follows */
    struct jit_marks *marks;
    struct jit_replay *replay;
};

/* Where the plan's device is current. After a failure, too, it is to be closed. */
coda_status timer_open(struct timer *t, const struct profiled *run, int threads);
void timer_close(struct timer *t);
/* Writes over the caches: begins it on the GPU, where what follows queues up behind it. */
coda_status timer_sweep(const struct timer *t);
/* A run, launch by launch, in microseconds each; and one as a whole. */
coda_status timer_each(struct timer *t, double *us);
coda_status timer_whole(const struct timer *t, double *us);

/* rates.c: bytes that a copy reads and writes in a second, and FLOPs of a product of this dtype; 0 if that
 * cannot be measured. */
coda_status rate_of_copies(const struct timer *t, double *rate);
coda_status rate_of_products(const struct timer *t, coda_dtype dtype, double *rate);

double profile_clock(void); /* us */

#endif
