/* util_symbolic.h -- random graphs over symbols, which the same calls make with numbers in their place. */
#ifndef UTIL_SYMBOLIC_H
#define UTIL_SYMBOLIC_H

#include "graph.h"

/* B, sequences; T, rows of each, perhaps 0; S, older keys, a multiple of 8. Ranges differ by seed. */
enum { SYMBOLIC_DIMS = 3 };
/* Of a seed that has this bit, ranges are wide: for plans that nobody runs. */
#define SYMBOLIC_WIDE ((uint64_t)1 << 63)
/* Of a seed that has this bit, gradients of all weights and of the first rows are outputs, too, where all
 * patterns that were drawn have them. How they are written down depends on what is a symbol. */
#define SYMBOLIC_GRADIENTS ((uint64_t)1 << 62)

/* With symbols, or the numbers of `values`. Never poisoned, unless a value is out of range. */
graph *symbolic_graph(uint64_t seed, const int64_t *values);
/* Values of its symbols: the least of each for shape 0, the most for 1, 1 or the least for 2, then any, and
 * those around multiples of 8. */
void symbolic_shape(uint64_t seed, int shape, int64_t *values);

#endif
