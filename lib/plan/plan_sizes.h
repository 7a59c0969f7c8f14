/*
 * plan_sizes.h -- sizes at which a plan is cut in another way. Shapes on different sides of one have plans of
 * different forms (shapes/pattern.c), so a rule that compares an extent with a number has that number here.
 */
#ifndef PLAN_SIZES_H
#define PLAN_SIZES_H

enum {
    LEAST_SAMPLE = 64,           /* rows of a sample whose vectors are columns' values of a tile */
    /* Columns of a product that leaves states of its rows, for others to finish. A state is 12 bytes or less,
     * written and read; tiles have 16 columns or more, of few rows 4 or more, but then there are as many tiles
     * as SMs at most. A column is two bytes or more. */
    LEAST_FOLDED = 8,         /* where a product reads the columns, too: a norm's row is not written */
    LEAST_FOLDED_GONE = 800,  /* where nobody does: the columns are neither written nor read */
    LEAST_FOLDED_KEPT = 2048, /* where others do: they are not read once more */
    LEAST_FOLDED_ONE = 36,    /* the same, and a state is a single float */
    LEAST_BEST = 64,          /* and the best of its rows */
    MOST_IN_LINE = 4096,         /* elements of a line: a launch takes longer */
    MOST_TOP_K_COLUMNS = 1 << 24 /* of top_k's operand, which a state's floats count exactly */
};

#endif
