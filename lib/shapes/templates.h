/*
 * templates.h -- shapes of one template: their plans differ in numbers alone, which are polynomials of their
 * symbols.
 * From a few plans that were made in full those of all others are written down.
 */
#ifndef TEMPLATES_H
#define TEMPLATES_H

#include "executable.h"
#include "pipeline.h"
#include "skeleton.h"

struct templates; /* of one family; many threads may ask */

/* The templates of a graph with symbols; NULL: out of memory, with the message set. */
struct templates *templates_new(const graph *g);
void templates_free(struct templates *f);
/* Around fork(). */
void templates_hold(struct templates *f);
void templates_let_go(struct templates *f);

/* The template of the plan for these values, of this one of the family's graphs, and where in it they are;
 * NULL: none is known. It stays. `approximate`: perhaps that of values around these which equal nothing; the
 * plan by that one may have other launches. */
const struct plan_template *templates_find(struct templates *f, const int64_t *dims, bool rewritten,
                                           bool approximate, int64_t *at);

/* Makes a plan in full by a dry run, to be freed; NULL: it cannot, and the message is set. */
struct sampler {
    coda_plan *(*plan)(const void *context, const int64_t *dims, struct guards *guards);
    const void *context;
    struct variants *variants;
    bool (*rewritten)(const void *context, const int64_t *dims); /* of which graph is a shape? */
    bool approximate;
    bool settles; /* a product without a main loop of its own has no template: libraries may be chosen */
};
/* A shape was planned in full, as its template is not known, and asked this. The second time that the answers
 * are these, or the first one where it is looked for approximately, plans around it are made, from which the
 * template is found, if there is one. What fails in that leaves no message. */
void templates_learn(struct templates *f, const int64_t *dims, const struct guards *asked,
                     const struct sampler *how);

#endif
