/*
 * polynomial.h -- polynomials over a few symbols with integer coefficients: what extents are computed with.
 *
 * Terms are sorted and none has the factor 0, so that equal polynomials are equal arrays. Arithmetic is
 * checked: what has more terms, a higher degree, or a factor past 63 bits is no polynomial, and the call says
 * false.
 */
#ifndef POLYNOMIAL_H
#define POLYNOMIAL_H

#include "base.h"

enum { MOST_TERMS = 8, MOST_DEGREE = 4, MOST_SYMBOLS = 16 };

/* A product of symbols: a byte for each, MOST_SYMBOLS less its number, the smallest byte lowest. So falling
 * words are falling degrees and then the order of the symbols. 0 is the number 1. */
typedef uint32_t monomial;

static inline int monomial_degree(monomial m) { return m ? 1 + monomial_degree(m >> 8) : 0; }
/* The number of its symbol i, 0 .. degree - 1, in rising order. */
static inline int monomial_symbol(monomial m, int i)
{
    return MOST_SYMBOLS - (int)(m >> 8 * (monomial_degree(m) - 1 - i) & 255);
}

struct term {
    monomial of;
    int64_t factor;
};

struct polynomial {
    int terms;
    struct term term[MOST_TERMS];
};

struct bounds {
    int64_t least, most;
};

struct polynomial polynomial_number(int64_t n);
struct polynomial polynomial_symbol(int symbol);
bool polynomial_equal(const struct polynomial *a, const struct polynomial *b);
uint32_t polynomial_hash(const struct polynomial *a);

/* out may be an operand. */
bool polynomial_add(struct polynomial *out, const struct polynomial *a, const struct polynomial *b);
bool polynomial_subtract(struct polynomial *out, const struct polynomial *a, const struct polynomial *b);
bool polynomial_multiply(struct polynomial *out, const struct polynomial *a, const struct polynomial *b);

/* out times b is a; false: no polynomial is. Terms fall in an order that products keep, so that the first
 * ones of what is left and of b give the next one of the quotient. */
bool polynomial_divide(struct polynomial *out, const struct polynomial *a, const struct polynomial *b);

/* Bounds of its values where symbol i, which is >= 0, is in symbol[i]; false if sums of terms pass 2^62,
 * above or below, at some place. They are exact if no symbol meets itself in a product; else maybe wider. */
bool polynomial_range(const struct polynomial *a, const struct bounds *symbol, struct bounds *out);
/* A number that divides all its values where symbol i is a multiple of multiple[i]; of 0: 0. */
int64_t polynomial_divisor(const struct polynomial *a, const int64_t *multiple);
/* At a place of that range. */
int64_t polynomial_value(const struct polynomial *a, const int64_t *symbol);

#endif
