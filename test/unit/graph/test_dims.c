/* test_dims.c -- expressions over symbols against plain evaluation at random places. */
#include "dims.h" /* before check.h, which has a macro called fail */

#include "util_random.h"
#include "util_scale.h"

#include "tests.h" /* last: Check has a macro named fail */
#include <stdio.h>
#include <string.h>

static struct arena arena;
static struct dims dims;

static void begin(void) { dims = (struct dims){.arena = &arena}; }

static void end(void) { arena_free(&arena); }

static int64_t symbol(const char *name, int64_t least, int64_t most, int64_t multiple)
{
    int64_t d = dims_symbol(&dims, name, least, most, multiple);
    ck_assert_msg(d != DIM_NONE, "%s", fail_message());
    return d;
}

static const char *shown(int64_t d)
{
    static char s[512];
    struct text t = {0};
    dims_print(&dims, d, &t);
    snprintf(s, sizeof s, "%s", text_str(&t));
    text_free(&t);
    return s;
}

/* ---- Random expressions ---- */

enum { SYMBOLS = 4, POOL = 40, PLACES = 64 };

/* Symbols are small enough that nothing of degree 4 overflows; one may be 0, one is even. */
static const struct symbol drawn[SYMBOLS] = {
    {"B", 1, 64, 1}, {"T", 0, 3000, 1}, {"S", 16, 4096, 16}, {"E", 2, 100, 2}};

struct sample {
    int64_t at[PLACES][SYMBOLS];
};

static void draw_places(struct random *r, struct sample *s)
{
    for (int p = 0; p < PLACES; p++)
        for (int i = 0; i < SYMBOLS; i++) {
            const struct symbol *d = &drawn[i];
            int64_t step = random_below(r, (d->most - d->least) / d->multiple + 1);
            if (p < 2) step = p ? (d->most - d->least) / d->multiple : 0;
            s->at[p][i] = d->least + d->multiple * step;
        }
}

/* An expression, with its values at all places by arithmetic of numbers alone. */
struct known {
    int64_t dim, at[PLACES];
};

/* Check's own assertions write to a pipe each, which is slow. */
static void check_known(const struct known *k, const struct sample *s)
{
    int64_t least = dims_least(&dims, k->dim), most = dims_most(&dims, k->dim);
    for (int p = 0; p < PLACES; p++) {
        int64_t value = dims_value(&dims, k->dim, s->at[p]);
        if (value != k->at[p] || value < least || value > most)
            ck_abort_msg("%s is %lld at place %d, not %lld; %lld..%lld", shown(k->dim), (long long)value, p,
                         (long long)k->at[p], (long long)least, (long long)most);
        for (int64_t n = 2; n <= 64; n *= 2)
            if (value % n && dims_divides(&dims, n, k->dim))
                ck_abort_msg("%lld divides %s = %lld", (long long)n, shown(k->dim), (long long)value);
    }
}

/* Equal at all places, if and only if they have one name. */
static void check_pair(const struct known *a, const struct known *b)
{
    bool equal = true, reaches = true;
    for (int p = 0; p < PLACES; p++) {
        equal = equal && a->at[p] == b->at[p];
        reaches = reaches && a->at[p] >= b->at[p];
    }
    if (equal != (a->dim == b->dim))
        ck_abort_msg("%lld and %lld: %s", (long long)a->dim, (long long)b->dim, shown(a->dim));
    if (!reaches && dims_reaches(&dims, a->dim, b->dim)) ck_abort_msg("%s is not reached", shown(b->dim));
}

static bool draw(struct random *r, const struct known *a, const struct known *b, struct known *out)
{
    int which = (int)random_below(r, 4);
    out->dim = which < 2    ? dims_add(&dims, a->dim, b->dim)
               : which == 2 ? dims_multiply(&dims, a->dim, b->dim)
                            : dims_subtract(&dims, a->dim, b->dim);
    for (int p = 0; p < PLACES && out->dim != DIM_NONE; p++)
        out->at[p] = which < 2 ? a->at[p] + b->at[p] : which == 2 ? a->at[p] * b->at[p] : a->at[p] - b->at[p];
    return out->dim != DIM_NONE;
}

static struct known number(int64_t n)
{
    struct known k = {.dim = n};
    for (int p = 0; p < PLACES; p++) k.at[p] = n;
    return k;
}

static void begin_pool(struct random *r, struct known *pool, struct sample *s)
{
    begin();
    draw_places(r, s);
    for (int i = 0; i < SYMBOLS; i++) {
        const struct symbol *d = &drawn[i];
        pool[i].dim = symbol(d->name, d->least, d->most, d->multiple);
        for (int p = 0; p < PLACES; p++) pool[i].at[p] = s->at[p][i];
    }
    for (int i = SYMBOLS; i < POOL; i++) pool[i] = number(random_below(r, 9));
}

/* A quotient times its divisor is what was divided, and a product has its factors as quotients. */
static void check_quotients(const struct known *a, const struct known *b, const struct sample *s)
{
    int64_t q = dims_divide(&dims, a->dim, b->dim), p = dims_multiply(&dims, a->dim, b->dim);
    for (int i = 0; q != DIM_NONE && i < PLACES; i++)
        if (dims_value(&dims, q, s->at[i]) * b->at[i] != a->at[i])
            ck_abort_msg("(%s) / (%s) is not %s at place %d", shown(a->dim), shown(b->dim), shown(q), i);
    if (p != DIM_NONE && b->dim && dims_divide(&dims, p, b->dim) != a->dim)
        ck_abort_msg("(%s) / (%s) is not a factor", shown(p), shown(b->dim));
}

START_TEST(test_random_expressions)
{
    static struct known pool[POOL];
    struct random r = {random_seed()};
    struct sample s;
    int all = scaled(100000);
    for (int i = 0; i < all; i++) {
        if (i % 2000 == 0) {
            if (i) end();
            begin_pool(&r, pool, &s);
        }
        struct known k, *old = &pool[SYMBOLS + random_below(&r, POOL - SYMBOLS)];
        const struct known *a = &pool[random_below(&r, POOL)], *b = &pool[random_below(&r, POOL)];
        if (!draw(&r, a, b, &k)) continue;
        check_known(&k, &s);
        check_quotients(a, b, &s);
        for (int j = i % 4; j < POOL; j += 4) check_pair(&k, &pool[j]);
        *old = random_chance(&r, 80) ? k : number(random_below(&r, 9));
    }
    end();
}
END_TEST

/* ---- By hand ---- */

START_TEST(test_equal_expressions_are_one)
{
    begin();
    int64_t b = symbol("B", 1, 8, 1), t = symbol("T", 1, 100, 1), bt = dims_multiply(&dims, b, t);
    ck_assert_int_eq(bt, dims_multiply(&dims, t, b));
    ck_assert_int_eq(dims_multiply(&dims, bt, dims_add(&dims, t, 2)),
                     dims_add(&dims, dims_multiply(&dims, bt, t), dims_multiply(&dims, 2, bt)));
    ck_assert_int_eq(dims_subtract(&dims, dims_add(&dims, t, 7), t), 7);
    ck_assert_int_eq(dims_subtract(&dims, t, t), 0);
    ck_assert_int_eq(dims_multiply(&dims, t, 0), 0);
    ck_assert_int_eq(dims_add(&dims, 2, 3), 5);
    ck_assert_int_ne(bt, b);
    ck_assert_int_lt(bt, 0);
    end();
}
END_TEST

START_TEST(test_quotients)
{
    begin();
    int64_t b = symbol("B", 1, 8, 1), t = symbol("T", 1, 100, 1), bt = dims_multiply(&dims, b, t);
    int64_t sum = dims_add(&dims, b, t), square = dims_multiply(&dims, sum, sum);
    ck_assert_int_eq(dims_divide(&dims, bt, t), b);
    ck_assert_int_eq(dims_divide(&dims, dims_multiply(&dims, 64, bt), 64), bt);
    ck_assert_int_eq(dims_divide(&dims, square, sum), sum);
    ck_assert_int_eq(dims_divide(&dims, bt, bt), 1);
    ck_assert_int_eq(dims_divide(&dims, 0, t), 0);
    ck_assert_int_eq(dims_divide(&dims, 12, 4), 3);
    ck_assert(dims_divide(&dims, t, 2) == DIM_NONE && dims_divide(&dims, t, b) == DIM_NONE);
    ck_assert(dims_divide(&dims, square, b) == DIM_NONE && dims_divide(&dims, t, 0) == DIM_NONE);
    ck_assert(dims_divide(&dims, 12, 5) == DIM_NONE && dims_divide(&dims, 0, 0) == DIM_NONE);
    ck_assert(dims_divide(&dims, 12, t) == DIM_NONE && dims_divide(&dims, -1, t) == DIM_NONE);
    end();
}
END_TEST

/* (B - 1)(T - 1) times (B + 1)(T + 1) + W has 8 terms, but 9 are left on the way back. */
START_TEST(test_long_division)
{
    begin();
    int64_t b = symbol("B", 50, 60, 1), t = symbol("T", 50, 60, 1), w = symbol("W", 1, 10, 1);
    int64_t less = dims_multiply(&dims, dims_subtract(&dims, b, 1), dims_subtract(&dims, t, 1));
    int64_t more = dims_multiply(&dims, dims_add(&dims, b, 1), dims_add(&dims, t, 1));
    int64_t sum = dims_add(&dims, more, w), product = dims_multiply(&dims, less, sum);
    ck_assert(product != DIM_NONE);
    ck_assert_int_eq(dims_divide(&dims, product, sum), less);
    ck_assert_int_eq(dims_divide(&dims, product, less), sum);
    ck_assert(dims_divide(&dims, product, more) == DIM_NONE);
    end();
}
END_TEST

START_TEST(test_text)
{
    begin();
    int64_t b = symbol("B", 1, 8, 1), t = symbol("T", 1, 100, 1);
    int64_t d = dims_add(&dims, dims_multiply(&dims, 2, dims_multiply(&dims, t, b)), dims_add(&dims, t, 3));
    ck_assert_str_eq(shown(d), "2*B*T+T+3");
    ck_assert_str_eq(shown(dims_subtract(&dims, dims_multiply(&dims, t, t), 1)), "T*T-1");
    ck_assert_str_eq(shown(dims_subtract(&dims, 200, t)), "-T+200");
    ck_assert_str_eq(shown(dims_add(&dims, t, b)), "B+T");
    ck_assert_str_eq(shown(12), "12");
    ck_assert_str_eq(shown(-99), "-99");
    end();
}
END_TEST

START_TEST(test_ranges_are_exact_at_corners)
{
    begin();
    int64_t b = symbol("B", 2, 8, 1), t = symbol("T", 3, 10, 1);
    int64_t d = dims_subtract(&dims, dims_multiply(&dims, b, t), t); /* (B - 1) T */
    ck_assert_int_eq(dims_least(&dims, d), 3);
    ck_assert_int_eq(dims_most(&dims, d), 70);
    ck_assert(dims_reaches(&dims, dims_multiply(&dims, b, t), dims_multiply(&dims, 2, t)));
    ck_assert(!dims_reaches(&dims, dims_multiply(&dims, b, t), dims_multiply(&dims, 3, t)));
    ck_assert(dims_reaches(&dims, 10, t) && !dims_reaches(&dims, 9, t));
    ck_assert(dims_reaches(&dims, t, 3) && !dims_reaches(&dims, t, 4));
    end();
}
END_TEST

START_TEST(test_divisors)
{
    begin();
    int64_t s = symbol("S", 16, 4096, 16), t = symbol("T", 1, 100, 1);
    int64_t d = dims_add(&dims, dims_multiply(&dims, s, t), dims_multiply(&dims, 24, t));
    ck_assert(dims_divides(&dims, 8, d) && !dims_divides(&dims, 16, d));
    ck_assert(dims_divides(&dims, 16, s) && !dims_divides(&dims, 32, s));
    ck_assert(!dims_divides(&dims, 2, t) && dims_divides(&dims, 1, t));
    ck_assert(dims_divides(&dims, 4, 12) && !dims_divides(&dims, 8, 12));
    end();
}
END_TEST

static void refused(int64_t d, const char *message)
{
    ck_assert(d == DIM_NONE);
    ck_assert_str_eq(fail_message(), message);
}

START_TEST(test_refused)
{
    begin();
    int64_t s = symbol("S", 16, 64, 16), t = symbol("T", 1, 100, 1), u = symbol("U", 0, (int64_t)1 << 40, 1);
    int64_t t4 = dims_multiply(&dims, dims_multiply(&dims, t, t), dims_multiply(&dims, t, t));
    refused(dims_subtract(&dims, s, t), "dim: S-T may be -84; must be >= 0");
    refused(dims_subtract(&dims, 3, 5), "dim: -2; must be >= 0");
    refused(dims_multiply(&dims, u, u), "dim: U*U may be more than 2^62");
    refused(dims_multiply(&dims, t4, t),
            "dim: (T*T*T*T)*(T) is no polynomial of at most 8 terms, degree 4 and 63 bits");
    refused(dims_symbol(&dims, "V", 5, 4, 1),
            "symbol V: its values are 5..4; need 0 <= least <= most, 1 <= most <= 2^62");
    refused(dims_symbol(&dims, "V", -1, 4, 1),
            "symbol V: its values are -1..4; need 0 <= least <= most, 1 <= most <= 2^62");
    refused(dims_symbol(&dims, "V", 1, 64, 16),
            "symbol V: its values are 1..64, multiples of 16; both ends must be multiples, of 1 or more");
    refused(dims_symbol(&dims, "V", 1, 64, 0),
            "symbol V: its values are 1..64, multiples of 0; both ends must be multiples, of 1 or more");
    int64_t sum = t;
    for (int i = 0; i < 13; i++) sum = dims_add(&dims, sum, symbol("V", 1, 2, 1));
    ck_assert_int_eq(sum, DIM_NONE);
    refused(dims_symbol(&dims, "W", 1, 2, 1), "symbol W: a graph has at most 16");
    end();
}
END_TEST

START_TEST(test_values)
{
    begin();
    int64_t s = symbol("S", 16, 64, 16), t = symbol("T", 0, 100, 1);
    ck_assert_int_eq(dims_value(&dims, dims_multiply(&dims, s, t), (int64_t[]){32, 3}), 96);
    ck_assert_int_eq(dims_check(&dims, "run", (int64_t[]){64, 0}), CODA_OK);
    ck_assert_int_eq(dims_check(&dims, "run", (int64_t[]){64, 101}), CODA_E_INVALID);
    ck_assert_str_eq(fail_message(), "run: T is 101; must be 0..100");
    ck_assert_int_eq(dims_check(&dims, "run", (int64_t[]){40, 1}), CODA_E_INVALID);
    ck_assert_str_eq(fail_message(), "run: S is 40; must be a multiple of 16");
    ck_assert(dims_has(&dims, s) && dims_has(&dims, 0) && dims_has(NULL, 5));
    ck_assert(!dims_has(&dims, -5) && !dims_has(&dims, DIM_NONE) && !dims_has(NULL, -2));
    ck_assert(!dims_has(&dims, DIM_REST) && s < DIM_REST && t < DIM_REST);
    end();
}
END_TEST

TESTS(dims, ONE(test_random_expressions), ONE(test_equal_expressions_are_one), ONE(test_quotients),
      ONE(test_long_division), ONE(test_text), ONE(test_ranges_are_exact_at_corners), ONE(test_divisors),
      ONE(test_refused), ONE(test_values));
