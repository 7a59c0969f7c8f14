/*
 * dims.h -- extents that are numbers, or known when a plan runs.
 *
 * An extent is an int64_t, outside as inside. One that is not negative is itself; a negative one names an
 * expression of its graph's table, a polynomial over the graph's symbols. Equal polynomials have one name, so
 * that equality of extents is equality of integers: it always has an answer. No expression is ever negative,
 * and each is at most 2^62 wherever its symbols may be.
 *
 * It is no struct, which would let the compiler find whoever takes a name for a number, because the rooms
 * behind a graph never meet one: they get bound graphs (bind.c), whose table is empty, so that type_check
 * refuses each negative extent, and rewrite() and graph_evaluate() refuse a graph with symbols. Inside this
 * room the questions below are asked instead of arithmetic; of numbers they are that arithmetic.
 */
#ifndef DIMS_H
#define DIMS_H

#include "polynomial.h"

#define DIM_NONE INT64_MIN /* no extent: what a failure returns, with the message set */
#define DIM_REST (-1)      /* in a reshape: what the others leave. No expression has this name, ... */
#define DIM_FIRST (-2)     /* ... but this one and those below it */

struct symbol {
    const char *name;
    int64_t least, most, multiple; /* least and most are multiples, too */
};

struct dims {
    struct arena *arena; /* the graph's */
    struct symbol symbol[MOST_SYMBOLS];
    int symbols;
    struct expression *expression; /* DIM_FIRST - name */
    int expressions, capacity;
    int *slot; /* open addressing: index + 1, or 0 */
    int slots;
};

static inline bool dim_is_number(int64_t d) { return d >= 0; }
/* A number, or an expression of this table. */
bool dims_has(const struct dims *t, int64_t d);

/* A new symbol, or a failure; the name is kept, not copied. */
int64_t dims_symbol(struct dims *t, const char *name, int64_t least, int64_t most, int64_t multiple);
/* Gives an empty table the symbols and expressions of another, under their names; false if memory ran out. */
bool dims_copy(struct dims *to, const struct dims *from);
/* DIM_NONE of what is no extent of this table; and, with the message set, if the result is past 2^62
 * somewhere, or below 0, or no polynomial of few terms and low degree. */
int64_t dims_add(struct dims *t, int64_t a, int64_t b);
int64_t dims_subtract(struct dims *t, int64_t a, int64_t b);
int64_t dims_multiply(struct dims *t, int64_t a, int64_t b);
/* The extent that times b is a; DIM_NONE, with the message set, if there is none, or more than one. */
int64_t dims_divide(struct dims *t, int64_t a, int64_t b);
/* Multiplies where numbers are known not to overflow; their graph may have no table. */
static inline int64_t dims_times(struct dims *t, int64_t a, int64_t b)
{
    return a >= 0 && b >= 0 ? a * b : dims_multiply(t, a, b);
}

/* Bounds of what it may be; a number is its own. */
int64_t dims_least(const struct dims *t, int64_t d);
int64_t dims_most(const struct dims *t, int64_t d);
/* Is a >= b wherever the symbols are? No also stands for "that is not known". */
bool dims_reaches(const struct dims *t, int64_t a, int64_t b);
/* Does n divide it, wherever the symbols are? */
bool dims_divides(const struct dims *t, int64_t n, int64_t d);

/* A value for each symbol, in order: is it one that the symbol may have? Failures begin with `call`. */
coda_status dims_check(const struct dims *t, const char *call, const int64_t *values);
int64_t dims_value(const struct dims *t, int64_t d, const int64_t *values);
/* The symbols that it is made of: bit i is symbol i. */
unsigned dims_symbols(const struct dims *t, int64_t d);

void dims_print(const struct dims *t, int64_t d, struct text *out); /* "2*B*T-1" */
void dims_print_symbols(const struct dims *t, struct text *out);    /* "B, T" */
struct dim_text {
    char s[48];
};
struct dim_text dim_text(const struct dims *t, int64_t d); /* for messages; a long one is cut off */

#endif
