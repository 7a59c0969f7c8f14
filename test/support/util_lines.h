/* util_lines.h -- random graphs of what a decode step counts: ids, positions, lengths, slots. */
#ifndef UTIL_LINES_H
#define UTIL_LINES_H

#include "util_random.h"

/* Values of 1 to 300 elements in shapes of their own, [n], [n, 1], [1, n]; states that are read, assigned and
 * appended to; rows of tables; and sums that a program of another kind computes from them. */
graph *random_lines(uint64_t seed);

#endif
