/*
 * plan_sizes.h -- sizes at which a plan is cut in another way, asked for by extent_reaches() of guards.h.
 * Shapes on different sides of one have plans of different forms.
 */
#ifndef PLAN_SIZES_H
#define PLAN_SIZES_H

enum {
    LEAST_SAMPLE = 64, /* rows of a sample whose vectors are columns' values of a tile */
    /* Columns of a product that leaves states of its rows, for others to finish. A state is 12 bytes or less,
     * written and read; tiles have 16 columns or more. A column is two bytes or more. */
    LEAST_FOLDED = 8,       /* where the columns are not written then, or a norm of them is not */
    LEAST_FOLDED_KEPT = 36, /* where they are, for others, and only not read once more */
    /* And of one that leaves the best elements of its rows. */
    LEAST_BEST_FEW = 32,
    LEAST_BEST = 64,
    MOST_NARROW = 64,            /* columns of passes over rows that lie beside each other and become one */
    MOST_IN_LINE = 4096,         /* elements of a line: a launch takes longer */
    MOST_TOP_K_COLUMNS = 1 << 24 /* of top_k's operand, which a state's floats count exactly */
};

#endif
