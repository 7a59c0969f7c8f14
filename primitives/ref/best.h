/* best.h -- the n largest elements of a row, in order, each with its column; infinity: of none. NaN is above
 * all, and of equal ones the one further left is better. */
#ifndef BEST_H
#define BEST_H

#include <math.h>

#include "ref.h"

static inline void best_init(double *state, int n)
{
    for (int i = 0; i < n; i++) state[2 * i] = -INFINITY, state[2 * i + 1] = INFINITY;
}

static inline bool best_beats(double x, double col, const double *entry)
{
    if (isnan(x) != isnan(entry[0])) return isnan(x);
    if (!isnan(x) && x != entry[0]) return x > entry[0];
    return col < entry[1];
}

static inline void best_push(double *state, int n, double x, double col)
{
    int i = n;
    for (; i > 0 && best_beats(x, col, state + 2 * (i - 1)); i--)
        if (i < n) state[2 * i] = state[2 * i - 2], state[2 * i + 1] = state[2 * i - 1];
    if (i < n) state[2 * i] = x, state[2 * i + 1] = col;
}

static inline void best_merge(double *state, int n, const double *other)
{
    for (int i = 0; i < n; i++) best_push(state, n, other[2 * i], other[2 * i + 1]);
}

#endif
