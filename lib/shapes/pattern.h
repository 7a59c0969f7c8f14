/*
 * pattern.h -- what decides which form a shape has: which extents are 0 or 1, or equal to each other or to a
 * number of the graph, as such extents let other rules apply; on which side they are of the sizes that decide
 * how a plan is cut, and so the product of those that are a sample's rows; and, where strides or offsets are
 * made of symbols, what is left of 16 elements, on which alignment depends.
 */
#ifndef PATTERN_H
#define PATTERN_H

#include "graph.h"

enum {
    MOST_ENTITIES = 40, /* symbols and expressions */
    MOST_NUMBERS = 256, /* other extents of the graphs */
    MOST_SAMPLES = 64,  /* ways in which rows of a product may be those of several samples */
    ALIGNED = 16,       /* elements on which alignment may depend */
    SMALL = 2,
    EQUAL = -1,
    GENERIC = INT16_MAX
};

struct pattern {               /* of symbols, then of expressions */
    int16_t of[MOST_ENTITIES]; /* its value, below SMALL; SMALL + the index of a number; EQUAL - that of an
                                  entity before it; or GENERIC */
    uint8_t size[MOST_ENTITIES];
    uint8_t rest[MOST_SYMBOLS];
    uint8_t is_long[MOST_SAMPLES]; /* has a sample of each kind as many rows as some rule wants? */
};

/* Rows of one sample: the product of a tensor's extents from some dimension to the rows. */
struct sample_rows {
    const struct dims *t;
    int rank;
    int64_t dim[CODA_MAX_RANK];
};

struct patterns { /* of two graphs that bindings are made of; does not change once it is open */
    const struct dims *t;
    int entities;
    int64_t number[MOST_NUMBERS];
    int numbers;
    struct sample_rows sample[MOST_SAMPLES];
    int samples;
    bool aligns;   /* do residues matter? */
    bool hopeless; /* there are too many of something */
};

void patterns_open(struct patterns *f, const graph *given, const graph *rewritten);
struct pattern pattern_of(const struct patterns *f, const int64_t *dims);
/* Values around these that equal as little as any. */
void pattern_move_away(const struct patterns *f, const int64_t *dims, int64_t *at);
int64_t pattern_common_multiple(int64_t a, int64_t b);

#endif
