/* util_appends.h -- random graphs that append to caches, of numbers that fp32 holds exactly. */
#ifndef UTIL_APPENDS_H
#define UTIL_APPENDS_H

#include "util_random.h"

/* Rows of a product, of ranges of its columns, or of an input, appended to caches of rows and of heads, dense
 * and strided, of 32, 16 and 8 bits, the last over scales that may be 0 or negative; read again as a whole.
 * Integers throughout, but for what is rounded once, where it is stored: all ways of running it agree on each
 * bit. NULL with the message set. */
graph *random_appends(uint64_t seed);

#endif
