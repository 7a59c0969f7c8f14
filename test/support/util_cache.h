/*
 * util_cache.h -- random programs that append to caches and attend to them, run step by step on one state,
 * against the manual's formula in fp64.
 *
 * Each step appends some rows to each sequence, none to some, and starts some sequences anew. Whatever no
 * query may see is poison: the caches at first, pages of nobody, table entries past a length. The caches of a
 * step are compared bit by bit with what the test itself has put in its own.
 */
#ifndef UTIL_CACHE_H
#define UTIL_CACHE_H

#include "util_random.h"

struct cache_case {
    uint64_t seed;          /* of the data */
    coda_dtype dtype, keys; /* of q and the result; of the caches: the same, or e4m3 */
    coda_cache_layout layout;
    int64_t batch, tq, tk; /* sequences, rows of a step, keys that a sequence has room for */
    int64_t page, pool;    /* keys of a page, pages of the pool; 0: sequences lie one behind the other */
    int64_t heads, kv_heads, head_dim;
    int64_t window, ahead;
    bool causal, slopes, sinks, lse;
    float scale, softcap;
    int scales; /* of e4m3: 0 none, 1 one, 2 one for each head */
    int steps;
};

enum cache_device { CACHE_BY_EVALUATION, CACHE_ON_CPU, CACHE_ON_GPU };

struct cache_case cache_draw(uint64_t seed);
const char *cache_describe(const struct cache_case *c); /* until the thread's next call */

/* The largest error of an element in units of what rounding explains, so that 1 is the most; infinity where
 * the caches are not what they should be, or -1 where it does not run: then with the message set. */
double cache_run(const struct cache_case *c, enum cache_device on);

#endif
