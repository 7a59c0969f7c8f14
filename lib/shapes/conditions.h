/*
 * conditions.h -- when a shape has the plan of a form: if planning it would get the answers that it got for
 * the plans from which the form was found (base/guards.h). The numbers of the questions are polynomials, as
 * those of the plans are.
 */
#ifndef CONDITIONS_H
#define CONDITIONS_H

#include "guards.h"
#include "skeleton.h"

struct conditions {
    struct condition *all;
    int n, variables, points; /* points: of the lattice that the polynomials are of */
};

/* What comes of plans: polynomials, none of this degree, or none at all. */
enum finding { FOUND, HAS_HIGHER_DEGREE, HAS_NONE };

/* From what was asked at the points of a lattice, and behind them at some proofs, which are at `proof`. */
enum finding conditions_find(struct conditions *c, const struct guards *const *asked, int variables,
                             int points, int64_t (*proof)[SKELETON_VARIABLES], int proofs);
/* `loosely`: even if numbers are equal by chance that are not in the form. */
bool conditions_hold(const struct conditions *c, const int64_t *at, bool loosely);
size_t conditions_bytes(const struct conditions *c);
void conditions_free(struct conditions *c);

#endif
