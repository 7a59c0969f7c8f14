/*
 * test_arg_max.c -- which column arg_max names: the first of equal ones, whatever the order of merging, and
 * the first NaN. That a column is exact is more than what test_primitives.c asks of a reduction.
 */
#include "base.h" /* before check.h, which has a macro `fail` */

#include "tests.h" /* last: Check has a macro named fail */
#include <math.h>
#include <string.h>

#include "prim.h"
#include "shim/shim.h"
#include "util_random.h"

enum { MOST = 96, STATES = 16 };

/* The textbook's: from the left, a larger one replaces, and a NaN ends it. */
static int first_largest(const float *x, int n)
{
    int at = n ? 0 : -1;
    for (int c = 0; c < n; c++) {
        if (isnan(x[c])) return c;
        if (x[c] > x[at]) at = c;
    }
    return at;
}

static const struct shim_reduce *device(void)
{
    const struct shim_reduce *r = shim_reduces;
    while (strcmp(r->name, "arg_max") != 0) r++;
    return r;
}

/* Column c goes to state owner[c]; then any state swallows any other one until one is left. */
static void both_ways(struct random *r, const float *x, int n, float *code, double *reference)
{
    const struct shim_reduce *d = device();
    const struct prim_reduce *h = prim_find("arg_max")->reduce;
    float s[STATES][PRIM_MAX_STATE];
    double t[STATES][PRIM_MAX_STATE];
    for (int k = 0; k < STATES; k++) d->init(s[k]), h->init(t[k]);
    for (int c = 0; c < n; c++) {
        int k = (int)random_below(r, STATES);
        d->push(s[k], x[c], c, 0), h->push(t[k], x[c], c, 0);
    }
    for (int left = STATES; left > 1; left--) {
        int a = (int)random_below(r, left), last = left - 1, b = a == last ? 0 : last;
        d->merge(s[a], s[b]), h->merge(t[a], t[b]);
        memcpy(s[b], s[last], sizeof s[b]), memcpy(t[b], t[last], sizeof t[b]);
    }
    *code = d->finish(s[0]);
    *reference = h->finish(t[0]);
}

START_TEST(first_of_equal_columns)
{
    const float value[] = {0, -0.0f, 1, 1, 2, -3, INFINITY, -INFINITY};
    struct random r = {random_seed()};
    for (int k = 0; k < 20000; k++) {
        float x[MOST], code;
        double reference;
        int n = (int)random_below(&r, MOST), kinds = 1 + (int)random_below(&r, ARRAY_SIZE(value));
        bool lowest = random_chance(&r, 8);
        for (int c = 0; c < n; c++) x[c] = lowest ? -INFINITY : value[random_below(&r, kinds)];
        for (int c = 0; c < n && k % 4 == 0; c++)
            if (random_chance(&r, 40)) x[c] = NAN;
        both_ways(&r, x, n, &code, &reference);
        ck_assert_int_eq((int)code, first_largest(x, n));
        ck_assert_int_eq((int)reference, first_largest(x, n));
    }
}
END_TEST

TESTS(arg_max, ONE(first_of_equal_columns));
