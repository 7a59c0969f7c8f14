/*
 * util_differences.h -- directional derivatives of a graph's loss by central differences, in fp64 through the
 * evaluator: what gradients are compared with.
 *
 * A loss is output 0, of one element. All fp32 leaves move at once; others stay. `leaf` are arguments that
 * differences_args has made: multiples of 2^-16, so that fp32 holds each moved one exactly.
 */
#ifndef UTIL_DIFFERENCES_H
#define UTIL_DIFFERENCES_H

#include "util_random.h"

/* How far the derivative may be off: by what the series leaves after two steps, and by rounding. Where three
 * steps disagree otherwise than a series does, or the two sides do not meet as the step shrinks, the loss has
 * a jump or a kink there: it is not smooth, and the value says nothing. */
struct difference {
    double value, error;
    bool smooth;
};

/* As random_args, with such leaves and room for doubles in outputs; free it with random_args_free. */
void **differences_args(const graph *g, uint64_t seed);

/* For each argument of dtype fp32 a number for each element, in the order of its indices, and else NULL:
 * drawn, multiples of 1/16 between -1 and 1. */
double **differences_direction(const graph *g, uint64_t seed);
void differences_direction_free(const graph *g, double **direction);

/* d loss(leaf + t direction) / dt at t = 0. False with the message set. */
bool difference_along(const graph *g, void *const *leaf, double *const *direction, struct difference *out);

#endif
