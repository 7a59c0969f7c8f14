/*
 * every.h -- all bindings of a graph's symbols, or, where these are very many, so many of them that none of
 * the kernels that shapes want should be missed.
 */
#ifndef EVERY_H
#define EVERY_H

#include "dims.h"

struct every {
    const struct dims *t;
    int64_t first[MOST_SYMBOLS], last[MOST_SYMBOLS]; /* in steps of the symbol's multiple, as those below */
    int64_t at[MOST_SYMBOLS];
    int bits; /* values of more significant bits are left out, but for those one step above such a value */
    bool ended;
};

void every_begin(struct every *e, const struct dims *t);
/* The next binding, from the least one on; false: there is none. */
bool every_next(struct every *e, int64_t *dims);

#endif
