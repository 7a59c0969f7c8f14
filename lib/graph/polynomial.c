/* polynomial.c -- arithmetic of polynomials over a few symbols, their ranges and divisors. */
#include "polynomial.h"

#include <stdlib.h>
#include <string.h>

enum { MOST_CORNERS = 10 }; /* symbols whose least and most values are tried with each other */

static const int64_t LIMIT = (int64_t)1 << 62;

struct polynomial polynomial_number(int64_t n)
{
    return (struct polynomial){.terms = n != 0, .term = {{0, n}}};
}

struct polynomial polynomial_symbol(int symbol)
{
    return (struct polynomial){.terms = 1, .term = {{(monomial)(MOST_SYMBOLS - symbol), 1}}};
}

bool polynomial_equal(const struct polynomial *a, const struct polynomial *b)
{
    bool equal = a->terms == b->terms;
    for (int i = 0; equal && i < a->terms; i++)
        equal = a->term[i].of == b->term[i].of && a->term[i].factor == b->term[i].factor;
    return equal;
}

uint32_t polynomial_hash(const struct polynomial *a)
{
    uint64_t h = 14695981039346656037u; /* FNV-1a, by words */
    for (int i = 0; i < a->terms; i++) {
        h = (h ^ a->term[i].of) * 1099511628211u;
        h = (h ^ (uint64_t)a->term[i].factor) * 1099511628211u;
        h ^= h >> 29;
    }
    return (uint32_t)(h ^ h >> 32);
}

/* ---- Sums and products ---- */

static bool multiply_monomials(monomial a, monomial b, monomial *out)
{
    monomial product = 0;
    int degree = monomial_degree(a) + monomial_degree(b);
    if (degree > MOST_DEGREE) return false;
    for (int i = 0; i < degree; i++) { /* the smallest byte of both comes first, and ends up highest */
        monomial *from = !a ? &b : !b ? &a : (a & 255) < (b & 255) ? &a : &b;
        product |= (*from & 255) << 8 * i;
        *from >>= 8;
    }
    *out = product;
    return true;
}

static int by_falling_monomial(const void *x, const void *y)
{
    const struct term *a = x, *b = y;
    return (a->of < b->of) - (a->of > b->of);
}

/* Sorts terms, adds those of one monomial, and drops what is 0. Returns how many are left; -1: a factor
 * overflows. */
static int merge(struct term *term, int n)
{
    int kept = 0;
    qsort(term, (size_t)n, sizeof *term, by_falling_monomial);
    for (int i = 0; i < n;) {
        struct term t = term[i++];
        for (; i < n && term[i].of == t.of; i++)
            if (__builtin_add_overflow(t.factor, term[i].factor, &t.factor)) return -1;
        if (t.factor == INT64_MIN) return -1;
        if (t.factor) term[kept++] = t;
    }
    return kept;
}

static bool collect(struct polynomial *out, struct term *term, int n)
{
    n = merge(term, n);
    if (n < 0 || n > MOST_TERMS) return false;
    *out = (struct polynomial){.terms = n};
    memcpy(out->term, term, sizeof *term * (size_t)n);
    return true;
}

static bool add_times(struct polynomial *out, const struct polynomial *a, const struct polynomial *b,
                      int64_t times)
{
    struct term term[2 * MOST_TERMS];
    int n = 0;
    for (int i = 0; i < a->terms; i++) term[n++] = a->term[i];
    for (int i = 0; i < b->terms; i++, n++) {
        term[n].of = b->term[i].of;
        if (__builtin_mul_overflow(b->term[i].factor, times, &term[n].factor)) return false;
    }
    return collect(out, term, n);
}

bool polynomial_add(struct polynomial *out, const struct polynomial *a, const struct polynomial *b)
{
    return add_times(out, a, b, 1);
}

bool polynomial_subtract(struct polynomial *out, const struct polynomial *a, const struct polynomial *b)
{
    return add_times(out, a, b, -1);
}

bool polynomial_multiply(struct polynomial *out, const struct polynomial *a, const struct polynomial *b)
{
    struct term term[MOST_TERMS * MOST_TERMS];
    int n = 0;
    for (int i = 0; i < a->terms; i++)
        for (int j = 0; j < b->terms; j++, n++)
            if (!multiply_monomials(a->term[i].of, b->term[j].of, &term[n].of) ||
                __builtin_mul_overflow(a->term[i].factor, b->term[j].factor, &term[n].factor))
                return false;
    return collect(out, term, n);
}

/* The symbols of a that b leaves; false if b has others. */
static bool divide_monomials(monomial a, monomial b, monomial *out)
{
    *out = 0;
    for (int at = 0; a; a >>= 8) {
        if ((a & 255) == (b & 255)) b >>= 8;
        else {
            *out |= (a & 255) << at;
            at += 8;
        }
    }
    return !b;
}

/* Long division. What is left meanwhile may have more terms than a polynomial. */
bool polynomial_divide(struct polynomial *out, const struct polynomial *a, const struct polynomial *b)
{
    struct term rest[MOST_TERMS + MOST_TERMS * MOST_TERMS];
    struct polynomial quotient = {0};
    int n = a->terms;
    if (!b->terms) return false;
    memcpy(rest, a->term, sizeof *rest * (size_t)n);
    while (n > 0) {
        struct term *next = &quotient.term[quotient.terms];
        if (quotient.terms++ == MOST_TERMS || !divide_monomials(rest[0].of, b->term[0].of, &next->of) ||
            rest[0].factor % b->term[0].factor)
            return false;
        next->factor = rest[0].factor / b->term[0].factor;
        for (int i = 0; i < b->terms; i++, n++)
            if (!multiply_monomials(next->of, b->term[i].of, &rest[n].of) ||
                __builtin_mul_overflow(-next->factor, b->term[i].factor, &rest[n].factor))
                return false;
        n = merge(rest, n);
    }
    *out = quotient;
    return n == 0;
}

/* ---- Values ---- */

int64_t polynomial_value(const struct polynomial *a, const int64_t *symbol)
{
    int64_t sum = 0;
    for (int i = 0; i < a->terms; i++) {
        int64_t product = a->term[i].factor;
        for (monomial m = a->term[i].of; m; m >>= 8) product *= symbol[MOST_SYMBOLS - (int)(m & 255)];
        sum += product;
    }
    return sum;
}

/* As symbols are >= 0, a product is least where all of them are. */
static bool term_range(const struct term *t, const struct bounds *symbol, struct bounds *out)
{
    struct bounds r = {1, 1};
    for (monomial m = t->of; m; m >>= 8) {
        const struct bounds *s = &symbol[MOST_SYMBOLS - (int)(m & 255)];
        if (__builtin_mul_overflow(r.least, s->least, &r.least)) return false;
        if (__builtin_mul_overflow(r.most, s->most, &r.most)) return false;
    }
    if (__builtin_mul_overflow(r.least, t->factor, &r.least)) return false;
    if (__builtin_mul_overflow(r.most, t->factor, &r.most)) return false;
    *out = t->factor > 0 ? r : (struct bounds){r.most, r.least};
    return true;
}

/* Each term by itself. The sums of what is positive, and of what is negative, stay within the limit, so that
 * no value overflows on the way, whatever the order of its terms. */
static bool range_by_terms(const struct polynomial *a, const struct bounds *symbol, struct bounds *out)
{
    struct bounds sum = {0, 0}, term;
    int64_t above = 0, below = 0;
    for (int i = 0; i < a->terms; i++) {
        if (!term_range(&a->term[i], symbol, &term)) return false;
        if (__builtin_add_overflow(above, MAX(term.most, 0), &above) || above > LIMIT) return false;
        if (__builtin_add_overflow(below, MIN(term.least, 0), &below) || below < -LIMIT) return false;
        sum.least += term.least;
        sum.most += term.most;
    }
    *out = sum;
    return true;
}

/* The symbols in it, a bit each, in *found; is it linear in each of them? */
static bool is_linear_in_each(const struct polynomial *a, unsigned *found)
{
    *found = 0;
    for (int i = 0; i < a->terms; i++) {
        monomial last = 0;
        for (monomial m = a->term[i].of; m; last = m & 255, m >>= 8) {
            if ((m & 255) == last) return false;
            *found |= 1u << (MOST_SYMBOLS - (int)(m & 255));
        }
    }
    return true;
}

/* What is linear in each symbol is least, and largest, where each of them is at an end of its range. */
static void range_by_corners(const struct polynomial *a, const struct bounds *symbol, unsigned found,
                             struct bounds *out)
{
    int64_t at[MOST_SYMBOLS];
    *out = (struct bounds){INT64_MAX, INT64_MIN};
    for (unsigned high = found;; high = (high - 1) & found) {
        for (int i = 0; i < MOST_SYMBOLS; i++) at[i] = high >> i & 1 ? symbol[i].most : symbol[i].least;
        int64_t value = polynomial_value(a, at);
        out->least = MIN(out->least, value);
        out->most = MAX(out->most, value);
        if (!high) return;
    }
}

bool polynomial_range(const struct polynomial *a, const struct bounds *symbol, struct bounds *out)
{
    unsigned found;
    if (!range_by_terms(a, symbol, out)) return false;
    if (is_linear_in_each(a, &found) && __builtin_popcount(found) <= MOST_CORNERS)
        range_by_corners(a, symbol, found, out);
    return true;
}

static int64_t common_divisor(int64_t a, int64_t b)
{
    while (b) {
        int64_t rest = a % b;
        a = b;
        b = rest;
    }
    return a;
}

int64_t polynomial_divisor(const struct polynomial *a, const int64_t *multiple)
{
    int64_t all = 0;
    for (int i = 0; i < a->terms; i++) {
        int64_t of = a->term[i].factor < 0 ? -a->term[i].factor : a->term[i].factor, more;
        for (monomial m = a->term[i].of; m; m >>= 8)
            if (!__builtin_mul_overflow(of, multiple[MOST_SYMBOLS - (int)(m & 255)], &more)) of = more;
        all = common_divisor(of, all);
    }
    return all;
}
