/*
 * type.c -- dimensions and strides: counting, comparing, checking, and their words in messages.
 *
 * A checked type fits in 2^62 bytes even if each of its empty dimensions had one element, so that
 * counts and strides of any subset of dimensions never overflow.
 */
#include "graph.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>

struct type_text dims_text(const struct type *t)
{
    struct type_text w;
    int n = snprintf(w.s, sizeof w.s, "[");
    for (int i = 0; i < t->rank && i < CODA_MAX_RANK; i++)
        n += snprintf(w.s + n, sizeof w.s - (size_t)n, "%s%" PRId64, i ? "," : "", t->dim[i]);
    snprintf(w.s + n, sizeof w.s - (size_t)n, "]");
    return w;
}

struct type_text type_text(const struct type *t)
{
    struct type_text w;
    snprintf(w.s, sizeof w.s, "%s%s", dtype_name(t->dtype), dims_text(t).s);
    return w;
}

int64_t type_elements(const struct type *t)
{
    int64_t n = 1, nonzero = 1;
    for (int i = 0; i < t->rank; i++) {
        if (t->dim[i] < 0 || __builtin_mul_overflow(nonzero, MAX(t->dim[i], 1), &nonzero)) return -1;
        n *= t->dim[i];
    }
    return nonzero >> 62 ? -1 : n;
}

bool type_equal(const struct type *a, const struct type *b)
{
    return a->dtype == b->dtype && a->rank == b->rank &&
           memcmp(a->dim, b->dim, sizeof a->dim[0] * (size_t)a->rank) == 0;
}

int64_t type_rows(const struct type *t)
{
    int64_t rows = 1;
    for (int i = 0; i + 1 < t->rank; i++) rows *= t->dim[i];
    return rows;
}

void dense_strides(const struct type *t, int64_t *stride)
{
    int64_t step = 1;
    for (int i = t->rank - 1; i >= 0; i--) {
        stride[i] = step;
        step *= MAX(t->dim[i], 1);
    }
}

coda_status type_check(const char *what, const char *name, const struct type *t)
{
    int size = dtype_size(t->dtype);
    if (!size) return fail(CODA_E_INVALID, "%s %s: %d is no dtype", what, name, (int)t->dtype);
    if (t->rank < 0 || t->rank > CODA_MAX_RANK)
        return fail(CODA_E_INVALID, "%s %s: rank is %d; must be 0..%d", what, name, t->rank, CODA_MAX_RANK);
    int64_t bytes = size;
    for (int i = 0; i < t->rank; i++) {
        if (t->dim[i] < 0)
            return fail(CODA_E_INVALID, "%s %s: dimension %d is %" PRId64 "; must be >= 0", what, name, i,
                        t->dim[i]);
        if (__builtin_mul_overflow(bytes, MAX(t->dim[i], 1), &bytes) || bytes > (int64_t)1 << 62)
            return fail(CODA_E_INVALID, "%s %s: %s does not fit in 2^62 bytes", what, name, type_text(t).s);
    }
    return CODA_OK;
}

bool shape_broadcast(const struct type *a, const struct type *b, struct type *out)
{
    struct type t = {a->dtype, MAX(a->rank, b->rank), {0}};
    for (int i = 1; i <= t.rank; i++) {
        int64_t p = i <= a->rank ? a->dim[a->rank - i] : 1, q = i <= b->rank ? b->dim[b->rank - i] : 1;
        if (p != q && p != 1 && q != 1) return false;
        t.dim[t.rank - i] = p == 1 ? q : p;
    }
    *out = t;
    return true;
}

/* ---- Strides ---- */

/* Dimensions of more than one element, by falling stride. */
static int sort_dims(const struct type *t, const int64_t *stride, int *order)
{
    int n = 0;
    for (int i = 0; i < t->rank; i++) {
        if (t->dim[i] <= 1) continue;
        int j = n++;
        for (; j > 0 && stride[order[j - 1]] < stride[i]; j--) order[j] = order[j - 1];
        order[j] = i;
    }
    return n;
}

/* Even an empty tensor's strides must fit, so that nobody's offsets overflow. */
static coda_status check_span(const char *what, const char *name, const struct type *t, const int64_t *stride)
{
    int64_t limit = ((int64_t)1 << 62) / dtype_size(t->dtype), span = 1;
    for (int i = 0; i < t->rank; i++) {
        int64_t reach;
        if (stride[i] < 0 || stride[i] > limit)
            return fail(CODA_E_INVALID, "%s %s: stride %d is %" PRId64 "; must be 0..%" PRId64, what, name, i,
                        stride[i], limit);
        if (__builtin_mul_overflow(stride[i], MAX(t->dim[i], 1) - 1, &reach) || reach > limit - span)
            return fail(CODA_E_INVALID, "%s %s: %s with stride %" PRId64 " does not fit in 2^62 bytes", what,
                        name, type_text(t).s, stride[i]);
        span += reach;
    }
    return CODA_OK;
}

/* Each dimension must step over all that the smaller ones span. That refuses a few layouts that are
 * free of overlap by the accident of their numbers. */
coda_status strides_check(const char *what, const char *name, const struct type *t, const int64_t *stride)
{
    int64_t span = 1;
    int order[CODA_MAX_RANK], n = sort_dims(t, stride, order);
    coda_status s = check_span(what, name, t, stride);
    if (s != CODA_OK || type_elements(t) == 0) return s;
    for (int k = n - 1; k >= 0; k--) {
        int d = order[k];
        if (stride[d] == 0)
            return fail(CODA_E_INVALID,
                        "%s %s: stride %d is 0 but dimension %d is %" PRId64 "; its elements overlap", what,
                        name, d, d, t->dim[d]);
        if (stride[d] < span)
            return fail(CODA_E_INVALID,
                        "%s %s: stride %d is %" PRId64 " but the dimensions below it span %" PRId64
                        " elements; they overlap",
                        what, name, d, stride[d], span);
        span += stride[d] * (t->dim[d] - 1);
    }
    return CODA_OK;
}
