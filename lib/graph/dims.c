/* dims.c -- the table of a graph's symbols and of the expressions over them. */
#include "dims.h"

#include "guards.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>

struct expression {
    struct polynomial of;
    struct bounds range;
    int64_t divisor;
};

static const int64_t MOST = (int64_t)1 << 62;
enum { MOST_EXPRESSIONS = 1 << 20 };

bool dims_has(const struct dims *t, int64_t d)
{
    return d >= 0 || (t && d != DIM_REST && DIM_FIRST - d < t->expressions);
}

static const struct expression *expression(const struct dims *t, int64_t d)
{
    return &t->expression[DIM_FIRST - d];
}

static struct polynomial polynomial(const struct dims *t, int64_t d)
{
    return d >= 0 ? polynomial_number(d) : expression(t, d)->of;
}

static bool bounds_of(const struct dims *t, const struct polynomial *a, struct bounds *out)
{
    struct bounds range[MOST_SYMBOLS] = {{0, 0}};
    for (int i = 0; i < t->symbols; i++) range[i] = (struct bounds){t->symbol[i].least, t->symbol[i].most};
    return polynomial_range(a, range, out);
}

static int64_t divisor_of(const struct dims *t, const struct polynomial *a)
{
    int64_t multiple[MOST_SYMBOLS] = {0};
    for (int i = 0; i < t->symbols; i++) multiple[i] = t->symbol[i].multiple;
    return polynomial_divisor(a, multiple);
}

/* ---- Names ---- */

static int *seek(const struct dims *t, const struct polynomial *a)
{
    uint32_t mask = (uint32_t)t->slots - 1, i = polynomial_hash(a) & mask;
    while (t->slot[i] && !polynomial_equal(&t->expression[t->slot[i] - 1].of, a)) i = (i + 1) & mask;
    return &t->slot[i];
}

/* Room for one more expression, and for its slot. */
static bool grow(struct dims *t)
{
    if (t->expressions < t->capacity) return true;
    int wider = MAX(32, 2 * t->capacity);
    struct expression *copy = ARENA_NEW(t->arena, struct expression, wider);
    int *slot = ARENA_NEW(t->arena, int, 2 * wider);
    if (!copy || !slot || wider > MOST_EXPRESSIONS) return false;
    if (t->expressions) memcpy(copy, t->expression, sizeof *copy * (size_t)t->expressions);
    t->expression = copy;
    t->slot = slot;
    t->slots = 2 * wider;
    t->capacity = wider;
    for (int i = 0; i < t->expressions; i++) *seek(t, &t->expression[i].of) = i + 1;
    return true;
}

static void print_polynomial(const struct dims *t, const struct polynomial *a, struct text *out)
{
    if (!a->terms) text_append(out, "0");
    for (int i = 0; i < a->terms; i++) {
        const struct term *m = &a->term[i];
        int64_t size = m->factor < 0 ? -m->factor : m->factor;
        if (m->factor < 0 || i) text_append(out, m->factor < 0 ? "-" : "+");
        if (size != 1 || !m->of) text_printf(out, "%" PRId64 "%s", size, m->of ? "*" : "");
        for (int j = 0; j < monomial_degree(m->of); j++)
            text_printf(out, "%s%s", j ? "*" : "", t->symbol[monomial_symbol(m->of, j)].name);
    }
}

static int64_t refuse(const struct dims *t, const struct polynomial *a, int64_t least)
{
    struct text text = {0};
    print_polynomial(t, a, &text);
    if (least < 0 && !a->term[0].of) fail(CODA_E_INVALID, "dim: %s; must be >= 0", text_str(&text));
    else if (least < 0)
        fail(CODA_E_INVALID, "dim: %.80s may be %" PRId64 "; must be >= 0", text_str(&text), least);
    else fail(CODA_E_INVALID, "dim: %.80s may be more than 2^62", text_str(&text));
    text_free(&text);
    return DIM_NONE;
}

/* The number that it is, or its one name. */
static int64_t name(struct dims *t, const struct polynomial *a)
{
    struct expression e = {.of = *a};
    if (!bounds_of(t, a, &e.range)) return refuse(t, a, 0);
    if (e.range.least < 0) return refuse(t, a, e.range.least);
    if (!a->terms || !a->term[0].of) return e.range.least;
    if (!grow(t)) {
        fail(CODA_E_MEMORY, "dim: out of memory after %d expressions", t->expressions);
        return DIM_NONE;
    }
    int *slot = seek(t, a);
    if (!*slot) {
        e.divisor = divisor_of(t, a);
        t->expression[t->expressions++] = e;
        *slot = t->expressions;
    }
    return DIM_FIRST + 1 - (int64_t)*slot;
}

bool dims_copy(struct dims *to, const struct dims *from)
{
    for (int i = 0; i < from->symbols; i++) {
        to->symbol[i] = from->symbol[i];
        to->symbol[i].name = arena_string(to->arena, from->symbol[i].name);
        if (!to->symbol[i].name) return false;
    }
    to->symbols = from->symbols;
    for (int i = 0; i < from->expressions; i++)
        if (name(to, &from->expression[i].of) != DIM_FIRST - (int64_t)i) return false;
    return true;
}

int64_t dims_symbol(struct dims *t, const char *called, int64_t least, int64_t most, int64_t multiple)
{
    if (t->symbols == MOST_SYMBOLS) {
        fail(CODA_E_INVALID, "symbol %.40s: a graph has at most %d", called, MOST_SYMBOLS);
        return DIM_NONE;
    }
    if (least < 0 || most < MAX(least, 1) || most > MOST) {
        fail(CODA_E_INVALID,
             "symbol %.40s: its values are %" PRId64 "..%" PRId64 "; need 0 <= least <= most, 1 <= most"
             " <= 2^62",
             called, least, most);
        return DIM_NONE;
    }
    if (multiple < 1 || least % multiple || most % multiple) {
        fail(CODA_E_INVALID,
             "symbol %.40s: its values are %" PRId64 "..%" PRId64 ", multiples of %" PRId64
             "; both ends must be multiples, of 1 or more",
             called, least, most, multiple);
        return DIM_NONE;
    }
    t->symbol[t->symbols] = (struct symbol){called, least, most, multiple};
    struct polynomial a = polynomial_symbol(t->symbols++);
    int64_t d = name(t, &a);
    if (d == DIM_NONE) t->symbols--;
    return d;
}

/* ---- Arithmetic ---- */

typedef bool arithmetic(struct polynomial *out, const struct polynomial *a, const struct polynomial *b);

static int64_t compute(struct dims *t, int64_t a, int64_t b, char sign, arithmetic *of)
{
    if (!dims_has(t, a) || !dims_has(t, b)) return DIM_NONE;
    struct polynomial x = polynomial(t, a), y = polynomial(t, b), result;
    if (of(&result, &x, &y)) return name(t, &result);
    fail(CODA_E_INVALID, "dim: (%s)%c(%s) is no polynomial of at most %d terms, degree %d and 63 bits",
         dim_text(t, a).s, sign, dim_text(t, b).s, MOST_TERMS, MOST_DEGREE);
    return DIM_NONE;
}

int64_t dims_add(struct dims *t, int64_t a, int64_t b) { return compute(t, a, b, '+', polynomial_add); }

int64_t dims_subtract(struct dims *t, int64_t a, int64_t b)
{
    return compute(t, a, b, '-', polynomial_subtract);
}

int64_t dims_multiply(struct dims *t, int64_t a, int64_t b)
{
    return compute(t, a, b, '*', polynomial_multiply);
}

int64_t dims_divide(struct dims *t, int64_t a, int64_t b)
{
    struct polynomial quotient;
    if (a >= 0 && b > 0 && a % b == 0) return a / b;
    if (dims_has(t, a) && dims_has(t, b)) {
        struct polynomial x = polynomial(t, a), y = polynomial(t, b);
        if (polynomial_divide(&quotient, &x, &y)) return name(t, &quotient);
    }
    fail(CODA_E_INVALID, "dim: (%s)/(%s) is no extent", dim_text(t, a).s, dim_text(t, b).s);
    return DIM_NONE;
}

/* ---- Questions ---- */

int64_t dims_least(const struct dims *t, int64_t d) { return d >= 0 ? d : expression(t, d)->range.least; }
int64_t dims_most(const struct dims *t, int64_t d) { return d >= 0 ? d : expression(t, d)->range.most; }

bool dims_reaches(const struct dims *t, int64_t a, int64_t b)
{
    if (a == b) return true;
    if (a >= 0 && b >= 0) return extent_reaches(a, b);
    struct polynomial x = polynomial(t, a), y = polynomial(t, b);
    struct bounds range;
    return polynomial_subtract(&x, &x, &y) && bounds_of(t, &x, &range) && range.least >= 0;
}

bool dims_divides(const struct dims *t, int64_t n, int64_t d)
{
    return (d >= 0 ? d : expression(t, d)->divisor) % n == 0;
}

/* ---- Values ---- */

coda_status dims_check(const struct dims *t, const char *call, const int64_t *values)
{
    for (int i = 0; i < t->symbols; i++) {
        const struct symbol *s = &t->symbol[i];
        if (values[i] < s->least || values[i] > s->most)
            return fail(CODA_E_INVALID, "%s: %.40s is %" PRId64 "; must be %" PRId64 "..%" PRId64, call,
                        s->name, values[i], s->least, s->most);
        if (values[i] % s->multiple)
            return fail(CODA_E_INVALID, "%s: %.40s is %" PRId64 "; must be a multiple of %" PRId64, call,
                        s->name, values[i], s->multiple);
    }
    return CODA_OK;
}

int64_t dims_value(const struct dims *t, int64_t d, const int64_t *values)
{
    return d >= 0 ? d : polynomial_value(&expression(t, d)->of, values);
}

unsigned dims_symbols(const struct dims *t, int64_t d)
{
    const struct polynomial p = polynomial(t, d);
    unsigned found = 0;
    for (int i = 0; i < p.terms; i++)
        for (int j = 0; j < monomial_degree(p.term[i].of); j++)
            found |= 1u << monomial_symbol(p.term[i].of, j);
    return found;
}

/* ---- Text ---- */

void dims_print(const struct dims *t, int64_t d, struct text *out)
{
    if (d >= 0 || !dims_has(t, d)) text_printf(out, "%" PRId64, d);
    else print_polynomial(t, &expression(t, d)->of, out);
}

void dims_print_symbols(const struct dims *t, struct text *out)
{
    for (int i = 0; i < t->symbols; i++) text_printf(out, "%s%s", i ? ", " : "", t->symbol[i].name);
}

struct dim_text dim_text(const struct dims *t, int64_t d)
{
    struct dim_text w;
    struct text text = {0};
    dims_print(t, d, &text);
    int n = snprintf(w.s, sizeof w.s, "%s", text_str(&text));
    if (n >= (int)sizeof w.s) memcpy(&w.s[sizeof w.s - 4], "...", 4);
    text_free(&text);
    return w;
}
