/* util_random_rows.h -- random graphs without products: what programs of rows are made of. */
#ifndef UTIL_RANDOM_ROWS_H
#define UTIL_RANDOM_ROWS_H

#include "util_random.h"

struct rows_options {
    int operations;   /* 0: 5 to 28 */
    int64_t most;     /* of an extent; 0: 40 */
    coda_dtype dtype; /* of the leaves; 0: fp32 */
    bool elements;    /* maps, casts, rows' statistics and states alone: no views, columns' statistics, ids */
};

/* A graph of maps, statistics, broadcasts, states and several outputs, not poisoned. Values stay of
 * order 1. opt may be NULL. */
graph *random_rows(uint64_t seed, const struct rows_options *opt);

#endif
