/*
 * forms.h -- shapes of one form: their plans differ in numbers alone, which are polynomials of their symbols.
 * From a few plans that were made in full those of all others are written down.
 */
#ifndef FORMS_H
#define FORMS_H

#include "executable.h"
#include "pipeline.h"
#include "skeleton.h"

struct forms; /* of one family; many threads may ask */

/* Of a graph with symbols; NULL: out of memory, with the message set. */
struct forms *forms_new(const graph *g);
void forms_free(struct forms *f);
/* Around fork(). */
void forms_hold(struct forms *f);
void forms_let_go(struct forms *f);

/* The form of the plan for these values, of this one of the family's graphs, and where in it they are; NULL:
 * none is known. It stays. `loosely`: perhaps that of values around these which equal nothing; the plan by
 * that one may have other launches. */
const struct form *forms_find(struct forms *f, const int64_t *dims, bool rewritten, bool loosely,
                              int64_t *at);

/* How a plan is made in full: drawn, to be freed; NULL: not at all, with the message set. */
struct drawing {
    coda_plan *(*draw)(const void *context, const int64_t *dims, struct guards *guards);
    const void *context;
    struct variants *variants;
    bool (*rewritten)(const void *context, const int64_t *dims); /* of which graph is a shape? */
    bool loosely;
    bool settles; /* a product without a main loop of its own has no form: libraries may be chosen */
};
/* A shape was planned in full, as its form is not known, and asked this. The second time that the answers are
 * these, or the first one where it is looked for loosely, plans around it are made, from which the form is
 * found, if it has one. What fails in that leaves no message. */
void forms_learn(struct forms *f, const int64_t *dims, const struct guards *asked, const struct drawing *how);

#endif
