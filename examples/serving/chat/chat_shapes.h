/*
 * chat_shapes.h -- the shapes that steps have: numbers of rows (T) and of sequences (B), to which those of a
 * step are rounded up, so that few plans and CUDA graphs serve all steps.
 */
#ifndef CHAT_SHAPES_H
#define CHAT_SHAPES_H

#include "chat_captures.h"
#include "chat_runner.h"

enum { SHAPES_MOST = 16, SHAPES_ALL = SHAPES_MOST * SHAPES_MOST + CAPTURES_MOST };

struct shapes {
    int64_t rows[SHAPES_MOST], sequences[SHAPES_MOST]; /* any of these goes with any of those */
    int64_t writers[CAPTURES_MOST];                    /* of steps in which each sequence has one row */
    int row_count, sequence_count, writer_count;
};

/* By the plan's prices: rounding up costs little time, and the options' greatest numbers are among them. */
bool shapes_choose(struct shapes *s, const coda_plan *plan, const struct runner_options *o, struct fault *f);
/* All of them as T, B, T, B ...: their number, at most SHAPES_ALL. */
int shapes_list(const struct shapes *s, int64_t *dims);
/* T and B of a step. */
void shapes_round(const struct shapes *s, int rows, int sequences, int64_t dims[2]);

#endif
