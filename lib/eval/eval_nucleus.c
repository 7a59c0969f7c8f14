/* eval_nucleus.c -- the least element of each row that top-k, top-p and min-p keep, from a sorted row in
 * fp64. */
#include "eval.h"

#include <math.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>

struct nucleus_job {
    const struct eval_call *c;
    atomic_bool failed;
};

static int by_size(const void *a, const void *b)
{
    double x = *(const double *)a, y = *(const double *)b;
    return x > y ? -1 : x < y;
}

/* Operand i of the row; `otherwise` if it is absent. */
static double number(const struct eval_call *c, int i, int64_t row, double otherwise)
{
    if (i >= c->n->nin || c->n->in[i] < 0) return otherwise;
    return c->in[i][type_elements(c->type[i]) == 1 ? 0 : row];
}

static double weight(double x, double most, double t)
{
    double w = x == most ? 1 : exp((x - most) / t);
    return w > 0 ? w : 0;
}

/* The first of those that follow an element, and are not equal to it. */
static int64_t behind_equals(const double *x, int64_t n, int64_t at)
{
    while (at + 1 < n && x[at + 1] == x[at]) at++;
    return at + 1;
}

/* x is in descending order. */
static double least_of(const double *x, int64_t n, double t, double k, double p, double min_p)
{
    double all = 0, reached = 0, most = x[0];
    int64_t kept = k >= 1 && k < (double)n ? behind_equals(x, n, (int64_t)k - 1) : n, last = kept - 1;
    for (int64_t i = 0; i < kept; i++) all += weight(x[i], most, t);
    if (p < 1)
        for (last = 0; last < kept - 1; last++)
            if ((reached += weight(x[last], most, t)) >= p * all) break;
    double least = last + 1 < n && behind_equals(x, n, last) < n ? x[last] : -INFINITY;
    return min_p > 0 ? fmax(least, fmin(most, most + t * log(min_p))) : least;
}

static void nucleus_rows(void *ctx, int64_t from, int64_t to)
{
    struct nucleus_job *j = ctx;
    const struct eval_call *c = j->c;
    int64_t n = type_columns(c->type[NUCLEUS_X]);
    double *x = malloc(sizeof *x * (size_t)n);
    if (!x) {
        j->failed = true;
        return;
    }
    for (int64_t row = from; row < to; row++) {
        double k = number(c, NUCLEUS_TOP_K, row, 0), p = number(c, NUCLEUS_TOP_P, row, 1),
               min_p = number(c, NUCLEUS_MIN_P, row, 0);
        bool limited = (k >= 1 && k < (double)n) || p < 1 || min_p > 0;
        c->out[row] = limited ? NAN : -INFINITY;
        if (!limited || isnan(eval_row_max(c->in[NUCLEUS_X] + row * n, n))) continue;
        memcpy(x, c->in[NUCLEUS_X] + row * n, sizeof *x * (size_t)n);
        qsort(x, (size_t)n, sizeof *x, by_size);
        c->out[row] = least_of(x, n, fmax(number(c, NUCLEUS_TEMPERATURE, row, 1), 0), k, p, min_p);
    }
    free(x);
}

coda_status eval_nucleus(const struct eval_call *c)
{
    struct nucleus_job j = {.c = c};
    eval_spread(type_rows(c->type[NUCLEUS_X]), type_columns(c->type[NUCLEUS_X]) * EVAL_TRANSCENDENTAL,
                nucleus_rows, &j);
    return j.failed ? fail(CODA_E_MEMORY, "evaluate: out of memory for a row") : CODA_OK;
}
