/*
 * type.c -- dimensions and strides: counting, comparing, checking, and their words in messages.
 *
 * A checked type fits in 2^62 bytes even if each of its empty dimensions had one element, so that
 * counts and strides of any subset of dimensions never overflow. It does so wherever its symbols may be.
 */
#include "graph.h"

#include "guards.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>

void extents_print(const struct dims *dims, const int64_t *extent, int n, struct text *out)
{
    for (int i = 0; i < n; i++) {
        if (i) text_append(out, ",");
        dims_print(dims, extent[i], out);
    }
}

static void print_dims(const struct type *t, struct text *out)
{
    text_append(out, "[");
    extents_print(t->dims, t->dim, MIN(t->rank, CODA_MAX_RANK), out);
    text_append(out, "]");
}

void type_print(const struct type *t, struct text *out)
{
    text_append(out, dtype_name(t->dtype));
    print_dims(t, out);
}

static struct type_text words(const struct type *t, void (*print)(const struct type *t, struct text *out))
{
    struct type_text w;
    struct text text = {0};
    print(t, &text);
    int n = snprintf(w.s, sizeof w.s, "%s", text_str(&text));
    if (n >= (int)sizeof w.s) memcpy(&w.s[sizeof w.s - 4], "...", 4);
    text_free(&text);
    return w;
}

struct type_text dims_text(const struct type *t) { return words(t, print_dims); }
struct type_text type_text(const struct type *t) { return words(t, type_print); }

bool type_is_bound(const struct type *t)
{
    bool numbers = true;
    for (int i = 0; i < t->rank; i++) numbers = numbers && dim_is_number(t->dim[i]);
    return numbers;
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

bool type_agrees(const struct type *a, const struct type *b)
{
    return a->dtype == b->dtype && a->rank == b->rank &&
           memcmp(a->dim, b->dim, sizeof *a->dim * (size_t)a->rank) == 0;
}

bool type_equal(const struct type *a, const struct type *b)
{
    return a->dtype == b->dtype && a->rank == b->rank && extents_all_equal(a->dim, b->dim, a->rank);
}

int64_t type_count(const struct type *t)
{
    int64_t n = 1;
    for (int i = 0; i < t->rank; i++) n = dims_times(t->dims, n, t->dim[i]);
    return n;
}

int64_t type_rows(const struct type *t)
{
    int64_t rows = 1;
    for (int i = 0; i + 1 < t->rank; i++) rows = dims_times(t->dims, rows, t->dim[i]);
    return rows;
}

void dense_strides(const struct type *t, int64_t *stride)
{
    int64_t step = 1;
    for (int i = t->rank - 1; i >= 0; i--) {
        stride[i] = step;
        step = dims_times(t->dims, step, extents_equal(t->dim[i], 0) ? 1 : t->dim[i]);
    }
}

/* It is neither a number nor an expression of the table. */
static coda_status fail_extent(const char *what, const char *name, const struct dims *dims, const char *part,
                               int i, int64_t d)
{
    bool later = d == DIM_REST && strcmp(what, "weight") != 0; /* as others write what a run will know */
    if (!dims || !dims->symbols)
        return fail(CODA_E_INVALID, "%s %s: %s %d is %" PRId64 "; must be >= 0%s", what, name, part, i, d,
                    later ? ", or a coda_symbol if runs differ" : "");
    return fail(CODA_E_INVALID, "%s %s: %s %d is %" PRId64 "; must be >= 0, or a symbolic one of this graph",
                what, name, part, i, d);
}

coda_status type_check(const char *what, const char *name, const struct type *t)
{
    int64_t elements = 1, limit = dtype_elements(t->dtype, (int64_t)1 << 62);
    if (!limit) return fail(CODA_E_INVALID, "%s %s: %d is no dtype", what, name, (int)t->dtype);
    if (t->rank < 0 || t->rank > CODA_MAX_RANK)
        return fail(CODA_E_INVALID, "%s %s: rank is %d; must be 0..%d", what, name, t->rank, CODA_MAX_RANK);
    for (int i = 0; i < t->rank; i++) {
        if (!dims_has(t->dims, t->dim[i])) return fail_extent(what, name, t->dims, "dimension", i, t->dim[i]);
        int64_t most = dims_most(t->dims, t->dim[i]);
        if (__builtin_mul_overflow(elements, MAX(most, 1), &elements) || elements > limit)
            return fail(CODA_E_INVALID, "%s %s: %s does not fit in 2^62 bytes", what, name, type_text(t).s);
    }
    return CODA_OK;
}

bool shape_broadcast(const struct type *a, const struct type *b, struct type *out)
{
    struct type t = {a->dtype, MAX(a->rank, b->rank), {0}, a->dims ? a->dims : b->dims};
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
    int64_t limit = dtype_elements(t->dtype, (int64_t)1 << 62), span = 1;
    for (int i = 0; i < t->rank; i++) {
        int64_t reach, most = dims_has(t->dims, stride[i]) ? dims_most(t->dims, stride[i]) : -1;
        if (most < 0 || most > limit)
            return fail(CODA_E_INVALID, "%s %s: stride %d is %s; must be 0..%" PRId64, what, name, i,
                        dim_text(t->dims, stride[i]).s, limit);
        if (__builtin_mul_overflow(most, MAX(dims_most(t->dims, t->dim[i]), 1) - 1, &reach) ||
            reach > limit - span)
            return fail(CODA_E_INVALID, "%s %s: %s with stride %s does not fit in 2^62 bytes", what, name,
                        type_text(t).s, dim_text(t->dims, stride[i]).s);
        span += reach;
    }
    return CODA_OK;
}

static bool are_bound(const struct type *t, const int64_t *stride)
{
    bool numbers = type_is_bound(t);
    for (int i = 0; i < t->rank; i++) numbers = numbers && dim_is_number(stride[i]);
    return numbers;
}

/* Wherever the symbols are. Each dimension steps over the whole of the next smaller one, which is as much as
 * all the smaller ones span together, or more. Which is smaller is seen where every symbol is largest. */
static coda_status check_symbolic(const char *what, const char *name, const struct type *t,
                                  const int64_t *stride)
{
    int64_t most[CODA_MAX_RANK], below = 1;
    struct type largest = *t;
    int order[CODA_MAX_RANK];
    for (int i = 0; i < t->rank; i++) {
        most[i] = dims_most(t->dims, stride[i]);
        largest.dim[i] = dim_is_number(t->dim[i]) ? t->dim[i] : MAX(dims_most(t->dims, t->dim[i]), 2);
    }
    for (int k = sort_dims(&largest, most, order) - 1; k >= 0; k--) {
        int d = order[k];
        if (!dims_reaches(t->dims, stride[d], below))
            return fail(CODA_E_INVALID,
                        "%s %s: %s has stride %s in dimension %d, but the next smaller one takes %s elements;"
                        " they may overlap",
                        what, name, type_text(t).s, dim_text(t->dims, stride[d]).s, d,
                        dim_text(t->dims, below).s);
        below = dims_times(t->dims, stride[d], t->dim[d]);
        if (below == DIM_NONE) return fail_status();
    }
    return CODA_OK;
}

/* Each dimension must step over all that the smaller ones span. That refuses a few layouts that are
 * free of overlap by the accident of their numbers. */
coda_status strides_check(const char *what, const char *name, const struct type *t, const int64_t *stride)
{
    int64_t span = 1;
    int order[CODA_MAX_RANK], n;
    coda_status s = check_span(what, name, t, stride);
    if (s != CODA_OK) return s;
    if (!are_bound(t, stride)) return check_symbolic(what, name, t, stride);
    if (type_elements(t) == 0) return CODA_OK;
    n = sort_dims(t, stride, order);
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
