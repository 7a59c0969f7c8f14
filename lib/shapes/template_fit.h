/*
 * template_fit.h -- the template of a shape, found from plans of shapes around it.
 *
 * The shape was planned in full, and left the answers that rewriting and planning got of its extents. Of each
 * symbol a step is sought that keeps the answers, alone or together with the symbols that equal it; a symbol
 * that has none is a constant of the template. Dry runs at the points of a small lattice give the polynomials
 * of the plan's numbers and of those that were asked for, first of degree 1. Plans of shapes far off, where
 * the guards promise the same answers, must be what the polynomials say, else a higher degree is tried.
 */
#ifndef TEMPLATE_FIT_H
#define TEMPLATE_FIT_H

#include "template_guards.h"
#include "templates.h"

struct shape_template {
    struct shape_template *next; /* in templates.c's list */
    const struct dims *t;
    bool rewritten; /* of which graph its plans are */
    struct plan_template plan_template;
    struct template_guards guards; /* of a shape at a point, to be one of the template */
    int variables;
    int variable[MOST_SYMBOLS]; /* of a symbol; -1: it is fixed, at ... */
    int64_t base[MOST_SYMBOLS];
    int64_t step[SKELETON_VARIABLES]; /* from the base; some fall */
};

/* Where a shape is; false: nowhere, as a symbol that is fixed has another value, or lies between steps. */
bool shape_template_point(const struct shape_template *e, const int64_t *dims, int64_t *at);
/* NULL: it has none, or memory ran out; without a message. */
struct shape_template *template_fit(const struct dims *t, const int64_t *dims, const struct guards *asked,
                                    const struct sampler *how);
void shape_template_free(struct shape_template *e);

#endif
