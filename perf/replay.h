/*
 * replay.h -- runs the sides of a figure as replays of CUDA graphs, and times them: in turns (replay.c), or
 * each alone under sustained load (sustained.c).
 */
#ifndef REPLAY_H
#define REPLAY_H

#include "bench.h"

enum { WARM = 3, MOST_RUNS = 192, EVENTS = 2 * SIDES * ROUNDS };

struct timer {
    const struct machine *machine;
    event event[EVENTS];
    bool quick;
};

void timer_open(struct timer *t, const struct machine *m);

/* The arguments of side s for one set of buffers. */
void side_args(const struct figure *f, const struct side *s, int set, void **args);
/* Bytes from what coda_prepare() leaves for one set to that for the next. */
size_t side_prepared_step(const struct side *s);
/* Ends the program with the library's error. */
void side_fail(const struct figure *f, const struct side *s);
/* One run, without waiting for it. */
void side_run(const struct figure *f, const struct side *s, int set);

/* So many runs from run `from` on as one CUDA graph, which the caller frees. */
graph side_capture(const struct figure *f, const struct side *s, int from, int runs);
/* Captures each side's replay and times `rounds` rounds, in which the sides take turns, into side.ms. */
void time_in_turns(const struct timer *t, struct figure *f);
/* After time_in_turns(): lets each side run alone for a second before it is timed for another, into side.ms,
 * and takes its power, its clock and the spread of its times. */
void time_sustained(const struct timer *t, struct figure *f);

static inline int clamp(double v, int low, int high) { return v < low ? low : v > high ? high : (int)v; }

#endif
