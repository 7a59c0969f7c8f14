/* util_priced.h -- random graphs in the sizes of models, for plans that are counted and not run. */
#ifndef UTIL_PRICED_H
#define UTIL_PRICED_H

#include "graph.h"

enum { PRICED_DIMS = 2 }; /* B, samples; T, rows of each */

/* Norms, products, ranges of their columns, concats, states, losses, and vectors of all rows, of samples, of
 * columns. With symbols, or, if dims is given, with these numbers in their place. Never poisoned. */
graph *priced_graph(uint64_t seed, const int64_t *dims);
/* Values of its symbols: one row, few rows, or many. */
void priced_shape(uint64_t seed, int64_t *dims);

#endif
