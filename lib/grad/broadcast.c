/*
 * broadcast.c -- broadcasting and its transpose. Where an operand of fewer dimensions, or of extents of 1,
 * stands for a larger one, its cotangent is the sum over what was repeated.
 */
#include "rules.h"

#include <string.h>

/* The extent of t at dimension d of `rank`, to which it broadcasts. */
static int64_t aligned(const struct type *t, int rank, int d)
{
    int own = d - (rank - t->rank);
    return own < 0 ? 1 : t->dim[own];
}

/* A factor of n, so that it and the other one are numbers which kernels count; 0: none was found. */
static int64_t countable_factor(int64_t n)
{
    int64_t first = CEIL_DIV(n, IOTA_MOST), tries = 1 << 16;
    for (int64_t f = first; f <= IOTA_MOST && f < first + tries; f++)
        if (n % f == 0) return f;
    return 0;
}

/* Any number for each place along an extent: a value that reads no memory. */
static int places(struct grad *w, int64_t extent)
{
    if (dims_most(w->g->dims, extent) <= IOTA_MOST) return make_iota(w, extent);
    int64_t f = dim_is_number(extent) ? countable_factor(extent) : 0;
    if (!f) {
        graph_poison(
            w->g, CODA_E_UNSUPPORTED, "grad: a cotangent is repeated %s times along a dimension; %d %s",
            dim_text(w->g->dims, extent).s, IOTA_MOST, "is the most, or a multiple of such a number");
        return -1;
    }
    struct type column = {.rank = 2, .dim = {f, 1}}, line = {.rank = 1, .dim = {extent}};
    int across = make_iota(w, extent / f);
    return make_reshape(w, make_add(w, make_reshape(w, make_iota(w, f), &column), across), &line);
}

/* A value of the extent of dimension d of like, along it. */
static int ruler(struct grad *w, const struct type *like, int d)
{
    struct type t = {.rank = like->rank - d, .dim = {like->dim[d]}};
    for (int i = 1; i < t.rank; i++) t.dim[i] = 1;
    return make_reshape(w, places(w, like->dim[d]), &t);
}

int make_wide(struct grad *w, int x, const struct type *like)
{
    if (x < 0) return -1;
    struct type to = *like, from = *grad_type(w, x);
    for (int d = to.rank - 1; d >= 0 && x >= 0; d--) {
        if (aligned(&from, to.rank, d) == to.dim[d]) continue;
        x = make_where(w, ruler(w, &to, d), x, x); /* x, whatever the ruler says */
    }
    return make_reshape(w, x, &to);
}

/* Dimensions first to last of x, none of them its columns, become 1. */
static int sum_rows(struct grad *w, int x, int first, int last)
{
    struct type whole = *grad_type(w, x), t = {.rank = first ? 3 : 2};
    struct type before = {.rank = first}, within = {.rank = last + 1 - first},
                behind = {.rank = whole.rank - last - 1};
    before.dims = within.dims = behind.dims = whole.dims;
    memcpy(before.dim, whole.dim, sizeof *whole.dim * (size_t)before.rank);
    memcpy(within.dim, whole.dim + first, sizeof *whole.dim * (size_t)within.rank);
    memcpy(behind.dim, whole.dim + last + 1, sizeof *whole.dim * (size_t)behind.rank);
    t.dim[0] = type_count(&before);
    t.dim[t.rank - 2] = type_count(&within);
    t.dim[t.rank - 1] = type_count(&behind);
    x = make_reduce(w, "sum", make_reshape(w, x, &t), -1, true);
    for (int d = first; d <= last; d++) whole.dim[d] = 1;
    return make_reshape(w, x, &whole);
}

int make_sum(struct grad *w, int x, const struct type *like)
{
    if (x < 0 || grad_same_dims(grad_type(w, x), like)) return x;
    struct type to = *like, from = *grad_type(w, x);
    for (int last = from.rank - 2; last >= 0 && x >= 0; last--) {
        int first = last;
        if (from.dim[last] == aligned(&to, from.rank, last)) continue;
        while (first > 0 && from.dim[first - 1] != aligned(&to, from.rank, first - 1)) first--;
        x = sum_rows(w, x, first, last);
        last = first;
    }
    if (x >= 0 && from.rank && type_columns(&from) != aligned(&to, from.rank, from.rank - 1))
        x = make_reduce(w, "sum", x, -1, false);
    return make_reshape(w, x, &to);
}

int make_zeros(struct grad *w, const struct type *like)
{
    return make_wide(w, graph_constant(w->g, like->dtype, 0), like);
}
