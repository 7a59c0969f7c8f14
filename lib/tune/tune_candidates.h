/* tune_candidates.h -- the ways to compute one product that a benchmark compares; between tune_candidates.c,
 * which makes them, and tune_bench.c, which times them. */
#ifndef TUNE_CANDIDATES_H
#define TUNE_CANDIDATES_H

#include "tune_bench.h"

enum { MOST_TILES = 50, MOST_MEASURED = MOST_TILES + 3, ROUNDS = 15 };

struct candidate {
    char name[CANDIDATE_SIZE];
    struct coda_plan *plan;
    int reference;          /* the candidate whose results it must repeat; -1: none */
    coda_status status;     /* a candidate that cannot be had is out */
    struct failure failure; /* of another thread */
    struct jit_replay *replay;
    double us[ROUNDS];
};

struct benchmark {
    const struct tuner *tuner;
    const struct plan *usual;
    const struct program *program;
    struct plan apart; /* no programs if there is no such candidate */
    struct candidate candidate[MOST_MEASURED];
    int candidates, runs, rounds, repeats; /* in a recording; turns; recordings in a turn */
    struct tensors tensors;
    struct jit_clock *clock;
};

/* Adds all candidates of the benchmark's program: planned, and with their kernels' texts. The first is the
 * plan's own. */
coda_status candidates_add(struct benchmark *c);

#endif
