/*
 * study.h -- the form of a shape, found from plans of shapes around it.
 *
 * The shape was planned in full, and left the answers that rewriting and planning got of its extents. Of each
 * symbol a step is sought that keeps the answers, alone or together with the symbols that equal it; a symbol
 * that has none is a constant of the form. Plans at the points of a small lattice give the polynomials of the
 * plan's numbers and of those that were asked for, first of degree 1. Plans of shapes far off, where the
 * conditions promise the same answers, must be what the polynomials say, else a higher degree is tried.
 */
#ifndef STUDY_H
#define STUDY_H

#include "conditions.h"
#include "forms.h"

struct shape_form {
    struct shape_form *next; /* in forms.c's list */
    const struct dims *t;
    bool rewritten; /* of which graph its plans are */
    struct form form;
    struct conditions conditions; /* of a shape at a point, to be one of the form */
    int variables;
    int variable[MOST_SYMBOLS]; /* of a symbol; -1: it is fixed, at ... */
    int64_t base[MOST_SYMBOLS];
    int64_t step[SKELETON_VARIABLES]; /* from the base; some fall */
};

/* Where a shape is; false: nowhere, as a symbol that is fixed has another value, or lies between steps. */
bool shape_form_point(const struct shape_form *e, const int64_t *dims, int64_t *at);
/* NULL: it has none, or memory ran out; without a message. */
struct shape_form *study_shape(const struct dims *t, const int64_t *dims, const struct guards *asked,
                               const struct drawing *how);
void shape_form_free(struct shape_form *e);

#endif
