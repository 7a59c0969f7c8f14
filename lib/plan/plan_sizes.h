/*
 * plan_sizes.h -- sizes at which a plan is cut in another way. Shapes on different sides of one have plans of
 * different forms (shapes/pattern.c), so a rule that compares an extent with a number has that number here.
 */
#ifndef PLAN_SIZES_H
#define PLAN_SIZES_H

enum {
    LEAST_SAMPLE = 64,           /* rows of a sample whose vectors are columns' values of a tile */
    /* Columns of a product that leaves states of its rows. Each is 12 bytes for 16 columns or more, written and
     * read; a column is two bytes or more, which are not read for them, and not written either unless they are
     * kept. */
    LEAST_FOLDED = 8,
    LEAST_FOLDED_KEPT = 36,
    MOST_IN_LINE = 4096,         /* elements of a line: a launch takes longer */
    MOST_TOP_K_COLUMNS = 1 << 24 /* of top_k's operand, which a state's floats count exactly */
};

#endif
