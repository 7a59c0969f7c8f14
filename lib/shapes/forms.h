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

/* Of two graphs that bindings are made of; NULL: out of memory, with the message set. */
struct forms *forms_new(const graph *given, const graph *rewritten);
void forms_free(struct forms *f);
/* Around fork(). */
void forms_hold(struct forms *f);
void forms_let_go(struct forms *f);

/* The form of the plan for these values, and where in it they are; NULL: none is known. It stays. `loosely`:
 * that of values around these which equal nothing; the plan by that one may have other launches. */
const struct form *forms_find(struct forms *f, const int64_t *dims, bool loosely, int64_t *at);

/* How a plan is made in full: drawn, to be freed; NULL: not at all, with the message set. */
struct drawing {
    coda_plan *(*draw)(void *context, const int64_t *dims, struct guards *guards);
    void *context;
    struct variants *variants;
    bool loosely;
    bool settles; /* a product without a main loop of its own has no form: libraries may be chosen */
};
/* A plan of these values is wanted, and its form is not known: the second time, or the first one where it is
 * looked for loosely, plans of its pattern are made, from which the form is found, if it has one. What fails
 * in that leaves no message. */
void forms_learn(struct forms *f, const int64_t *dims, const struct drawing *how);

#endif
