/*
 * chat_timer.h -- how long a GPU works for a step, and how long it then waits for the next one, by its own
 * events.
 */
#ifndef CHAT_TIMER_H
#define CHAT_TIMER_H

#include <stdbool.h>

#include "gpu.h"

struct timer {
    const struct gpu *gpu;
    gpu_event start[2], end[2]; /* of a step and of the one before, in turns */
    int steps;
};

/* Seconds of the step that ended last. */
struct step_times {
    double device; /* from the start of its launches to their end */
    double since;  /* from the start of the step before to its own; 0: there was none */
};

bool timer_open(struct timer *t, const struct gpu *g);
void timer_close(struct timer *t);
/* Around a step's launches; copies are outside. */
bool timer_start(struct timer *t, coda_stream s);
bool timer_end(struct timer *t, coda_stream s);
/* Once the stream has been waited for. */
bool timer_read(struct timer *t, struct step_times *out);

#endif
