/*
 * every.c -- a walk through the bindings of symbols, the first symbol's values fastest.
 *
 * Where a kernel gives way to another one is seldom anywhere but behind a multiple of a power of two, in
 * steps no finer than a 64th of the number: so of too many values those are left out first that are far from
 * such.
 */
#include "every.h"

enum { MOST_BITS = 62, LEAST_BITS = 1, MOST_BINDINGS = 1 << 14 };

/* The next value above that is not left out. */
static int64_t above(int64_t value, int64_t last, int bits)
{
    int64_t unit = 1;
    while (value >> bits >= unit) unit *= 2;
    int64_t next = value % unit ? value - value % unit + unit : value + 1;
    return MIN(next, last);
}

/* The number of bindings; MOST_BINDINGS + 1 stands for more than so many. */
static int64_t count(const struct every *e)
{
    int64_t all = 1;
    for (int i = 0; i < e->t->symbols; i++) {
        int64_t values = 1;
        for (int64_t v = e->first[i]; v < e->last[i] && values <= MOST_BINDINGS; values++)
            v = above(v, e->last[i], e->bits);
        all = MIN(all * values, MOST_BINDINGS + 1);
    }
    return all;
}

void every_begin(struct every *e, const struct dims *t)
{
    *e = (struct every){.t = t, .bits = MOST_BITS};
    for (int i = 0; i < t->symbols; i++) {
        e->at[i] = e->first[i] = t->symbol[i].least / t->symbol[i].multiple;
        e->last[i] = t->symbol[i].most / t->symbol[i].multiple;
    }
    for (e->bits = MOST_BITS; e->bits > LEAST_BITS && count(e) > MOST_BINDINGS;) e->bits--;
}

bool every_next(struct every *e, int64_t *dims)
{
    int i = 0;
    if (e->ended) return false;
    for (int k = 0; k < e->t->symbols; k++) dims[k] = e->at[k] * e->t->symbol[k].multiple;
    while (i < e->t->symbols && e->at[i] == e->last[i]) e->at[i] = e->first[i], i++;
    e->ended = i == e->t->symbols;
    if (!e->ended) e->at[i] = above(e->at[i], e->last[i], e->bits);
    return true;
}
