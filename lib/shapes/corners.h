/*
 * corners.h -- shapes that stand for others: those that are the largest of their kinds, and those near one.
 */
#ifndef CORNERS_H
#define CORNERS_H

#include "graph.h"

/* The corners are all combinations of the first MOST_SMALL symbols' largest value, the least but 0, and 0;
 * the other symbols are as large as may be, and where the first are alike they are all three in turn. To
 * each belongs the shape whose large symbols are one step less. */
enum { MOST_SMALL = 3, CHOICE_BITS = 2, MOST_CORNERS = 2 << CHOICE_BITS * (MOST_SMALL + 1) };
enum { CORNER_LARGE = 0, CORNER_SMALL = 2 * (1 + 4 + 16 + 64) }; /* all symbols */

/* Shape k of them; false: there is none, or another one is the same. */
bool corner_shape(const struct dims *t, int k, int64_t *dims);

/* A step up or down from a shape, of all symbols that can take it, or of one: of 16 units, 8, .. or 1. A long
 * one comes first, as it keeps the lowest bits of a symbol, on which alignment depends. */
int neighbors(const struct dims *t);
/* Shape k of them; false: there is none. */
bool neighbor_shape(const struct dims *t, const int64_t *dims, int k, int64_t *out);

#endif
