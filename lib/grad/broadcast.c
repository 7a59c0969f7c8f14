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

/* 0, 1, ... along dimension d of like: a value of that many elements which reads no memory. */
static int ruler(struct grad *w, const struct type *like, int d)
{
    struct type t = {.rank = like->rank - d, .dim = {like->dim[d]}};
    for (int i = 1; i < t.rank; i++) t.dim[i] = 1;
    return make_reshape(w, make_iota(w, like->dim[d]), &t);
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
