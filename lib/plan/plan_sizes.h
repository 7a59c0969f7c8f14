/*
 * plan_sizes.h -- sizes at which a plan is cut in another way, asked for by extent_reaches() of guards.h.
 * Shapes on different sides of one have plans of different forms; shapes/pattern.c looks on each side.
 */
#ifndef PLAN_SIZES_H
#define PLAN_SIZES_H

enum {
    LEAST_SAMPLE = 64,           /* rows of a sample whose vectors are columns' values of a tile */
    MOST_IN_LINE = 4096,         /* elements of a line: a launch takes longer */
    MOST_TOP_K_COLUMNS = 1 << 24 /* of top_k's operand, which a state's floats count exactly */
};

#endif
