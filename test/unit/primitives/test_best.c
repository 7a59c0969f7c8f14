/*
 * test_best.c -- the states of top_2 to top_16 name elements and columns in order, the first of equal ones
 * first, whatever the order of merging: more than what test_primitives.c asks of a reduction.
 */
#include "base.h" /* before check.h, which has a macro `fail` */

#include "tests.h" /* last: Check has a macro named fail */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "prim.h"
#include "shim/shim.h"
#include "util_random.h"

enum { MOST = 96, STATES = 8 };

struct element {
    float x;
    int column;
};

static int by_order(const void *a, const void *b)
{
    const struct element *p = a, *q = b;
    if (isnan(p->x) != isnan(q->x)) return isnan(p->x) ? -1 : 1;
    if (!isnan(p->x) && p->x != q->x) return p->x > q->x ? -1 : 1;
    return p->column - q->column;
}

static const struct shim_reduce *device(const char *name)
{
    const struct shim_reduce *r = shim_reduces;
    while (strcmp(r->name, name) != 0) r++;
    return r;
}

/* Column c goes to any state; then any one swallows any other until one is left. */
static void both_ways(struct random *r, const char *name, const struct element *e, int n, float *code,
                      double *reference)
{
    const struct shim_reduce *d = device(name);
    const struct prim_reduce *h = prim_find(name)->reduce;
    float s[STATES][PRIM_MAX_STATE];
    double t[STATES][PRIM_MAX_STATE];
    for (int k = 0; k < STATES; k++) d->init(s[k]), h->init(t[k]);
    for (int c = 0; c < n; c++) {
        int k = (int)random_below(r, STATES);
        d->push(s[k], e[c].x, e[c].column, 0), h->push(t[k], e[c].x, e[c].column, 0);
    }
    for (int left = STATES; left > 1; left--) {
        int a = (int)random_below(r, left), last = left - 1, b = a == last ? 0 : last;
        d->merge(s[a], s[b]), h->merge(t[a], t[b]);
        memcpy(s[b], s[last], sizeof s[b]), memcpy(t[b], t[last], sizeof t[b]);
    }
    memcpy(code, s[0], sizeof s[0]);
    memcpy(reference, t[0], sizeof t[0]);
}

static void check_entry(double x, double column, const struct element *want)
{
    ck_assert(want ? isnan(want->x) ? isnan(x) : x == want->x : x == -INFINITY);
    ck_assert(want ? column == want->column : isinf(column));
}

START_TEST(entries_are_in_order)
{
    static const char *const names[] = {"top_2", "top_4", "top_8", "top_16"};
    const float value[] = {0, -0.0f, 1, 1, 2, -3, INFINITY, -INFINITY, NAN};
    const struct prim *p = prim_find(names[_i]);
    struct random r = {random_seed() + (uint64_t)_i};
    int rounds = SANITIZED && !scale_is_full() ? 500 : 5000;
    for (int k = 0; k < rounds; k++) {
        struct element e[MOST];
        float code[PRIM_MAX_STATE];
        double reference[PRIM_MAX_STATE];
        int n = (int)random_below(&r, MOST), kinds = 1 + (int)random_below(&r, ARRAY_SIZE(value));
        for (int c = 0; c < n; c++)
            e[c] = (struct element){k % 3 ? value[random_below(&r, kinds)] : (float)random_normal(&r), c};
        for (int c = n - 1; c > 0 && k % 2; c--) { /* in no order */
            int other = (int)random_below(&r, c + 1);
            struct element swap = e[c];
            e[c] = e[other], e[other] = swap;
        }
        both_ways(&r, p->name, e, n, code, reference);
        qsort(e, (size_t)n, sizeof *e, by_order);
        for (int i = 0; i < p->state / 2; i++) {
            check_entry(code[2 * i], code[2 * i + 1], i < n ? &e[i] : NULL);
            check_entry(reference[2 * i], reference[2 * i + 1], i < n ? &e[i] : NULL);
        }
    }
}
END_TEST

TESTS(best, EACH(entries_are_in_order, 4));
