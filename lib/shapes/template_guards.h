/*
 * template_guards.h -- when a shape has the plan of a template: if planning it would get the answers that it
 * got for the plans from which the template was found (base/guards.h). The numbers of the questions are
 * polynomials, as those of the plans are.
 */
#ifndef TEMPLATE_GUARDS_H
#define TEMPLATE_GUARDS_H

#include "guards.h"
#include "skeleton.h"

struct template_guards {
    struct template_guard *all;
    int n, variables, points; /* points: of the lattice that the polynomials are of */
};

/* The outcome for some plans: polynomials, none of this degree, or none at all. */
enum finding { FOUND, HAS_HIGHER_DEGREE, HAS_NONE };

/* From what was asked at the points of a lattice, and behind them at some proofs, which are at `proof`. */
enum finding template_guards_find(struct template_guards *c, const struct guards *const *asked, int variables,
                                  int points, int64_t (*proof)[SKELETON_VARIABLES], int proofs);
/* `approximate`: even if numbers are equal by chance that are not in the template. */
bool template_guards_hold(const struct template_guards *c, const int64_t *at, bool approximate);
size_t template_guards_bytes(const struct template_guards *c);
void template_guards_free(struct template_guards *c);

#endif
