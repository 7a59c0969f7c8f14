/* eval_top_k.c -- the k largest of each row, one after the other, in fp64. */
#include "eval.h"

#include <math.h>

/* Does element i come before element j of a row? NaN is above all; of equal ones the first comes first. */
static bool comes_before(const double *x, int64_t i, int64_t j)
{
    if (isnan(x[i]) || isnan(x[j])) return isnan(x[i]) && (!isnan(x[j]) || i < j);
    return x[i] > x[j] || (x[i] == x[j] && i < j);
}

/* The first of those that come after element `last`; of all, if that is -1. */
static int64_t next(const double *x, int64_t n, int64_t last)
{
    int64_t best = -1;
    for (int64_t i = 0; i < n; i++)
        if ((last < 0 || comes_before(x, last, i)) && (best < 0 || comes_before(x, i, best))) best = i;
    return best;
}

static void top_k_rows(void *ctx, int64_t from, int64_t to)
{
    const struct eval_call *c = ctx;
    int64_t n = type_columns(c->type[TOP_K_X]), k = c->n->attr.top_k.k;
    for (int64_t row = from; row < to; row++) {
        const double *x = c->in[TOP_K_X] + row * n;
        for (int64_t i = 0, at = -1; i < k; i++) {
            at = next(x, n, at);
            c->out[row * k + i] = c->n->attr.top_k.indices ? (double)at : x[at];
        }
    }
}

coda_status eval_top_k(const struct eval_call *c)
{
    struct eval_call of = *c;
    int64_t work = mul_counts(type_columns(c->type[TOP_K_X]), c->n->attr.top_k.k);
    eval_spread(type_rows(&c->n->type), work, top_k_rows, &of);
    return CODA_OK;
}
