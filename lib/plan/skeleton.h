/*
 * skeleton.h -- plans that differ in numbers alone: extents, strides, offsets, bytes, each of which is a
 * polynomial of a few coordinates. One that is known at some points is written down at any other one,
 * without its graph.
 *
 * What is scheduled and placed is left out: tiles, states that tiles leave, offsets in the workspace.
 */
#ifndef SKELETON_H
#define SKELETON_H

#include "plan.h"

enum { SKELETON_VARIABLES = 3, SKELETON_DEGREE = 3, SKELETON_POINTS = 20 };

struct skeleton;

/* A plan, placed, and beside it an array of int64_t or of what consists of such: equally long in each. */
struct sample {
    struct plan *plan;
    const void *beside;
    size_t bytes;
};

/* The points of a lattice that determine polynomials of a degree: their number, and point `index`, whose
 * coordinates are not negative and add up to the degree at most. Those of a lower degree come first. */
int skeleton_points(int variables, int degree);
void skeleton_point(int variables, int index, int64_t *at);

/* A number's polynomial, from its values at so many points of a lattice. */
struct skeleton_number {
    int64_t difference[SKELETON_POINTS];
    int terms; /* behind which differences are 0 */
};
struct skeleton_number skeleton_number(int variables, int points, const int64_t *value);
/* What the numbers of so many points are sums of at a place, and such a sum. */
void skeleton_terms(int variables, int points, const int64_t *at, uint64_t *term);
int64_t skeleton_value(const struct skeleton_number *n, const uint64_t *term);

/* The skeleton of plans at the points of a lattice, in their order. Takes the first one, which is empty
 * then. NULL, and all as it was: they differ in more than numbers, or memory ran out. */
struct skeleton *skeleton_new(const struct sample *sample, int variables, int degree);
void skeleton_free(struct skeleton *s); /* after the plans that were made of it; NULL is fine */
/* Is the plan at this point what the skeleton says? */
bool skeleton_fits(const struct skeleton *s, const struct sample *sample, const int64_t *at);
/* The plan at a point, not scheduled or placed, and what is beside it. It has no graph, and shares steps with
 * the skeleton. false: out of memory. */
bool skeleton_plan(const struct skeleton *s, const int64_t *at, struct plan *out, void *beside);
size_t skeleton_bytes(const struct skeleton *s); /* that it takes, about */

#endif
