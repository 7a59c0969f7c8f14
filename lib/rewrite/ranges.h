/* ranges.h -- slices of a product's columns that its epilogue computes with, each apart from the others. */
#ifndef RANGES_H
#define RANGES_H

#include "graph.h"

#include <stdbool.h>

/* Says for each node whether it is such a slice, and too wide for a tile to have a row of it. The caller
 * frees the array; NULL if memory runs out. */
bool *ranges_find(const graph *g);

#endif
