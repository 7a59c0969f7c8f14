/* infer_view.c -- the types of what moves data: slice, concat, reshape, transpose. */
#include "infer.h"

#include <inttypes.h>

/* 0 <= start <= stop <= extent, wherever symbols are. */
static bool is_range(const struct dims *t, int64_t start, int64_t stop, int64_t extent)
{
    return dims_has(t, start) && dims_has(t, stop) && dims_reaches(t, stop, start) &&
           dims_reaches(t, extent, stop);
}

coda_status find_axis(const struct node *n, const char *name, const struct type *x, int64_t *axis)
{
    int64_t given = *axis;
    if (given < 0) *axis += x->rank;
    if (*axis >= 0 && *axis < x->rank) return CODA_OK;
    return fail(CODA_E_INVALID, "%s: %s is %s; it has no axis %" PRId64, node_word(n), name, dims_text(x).s,
                given);
}

static coda_status slice_of_symbols(struct node *n, int64_t start, int64_t stop)
{
    struct dims *t = n->type.dims;
    int64_t axis = n->attr.slice.axis, step = n->attr.slice.step;
    if (step != 1)
        return fail(CODA_E_INVALID, "slice: x is %s; step %" PRId64 " along %s must be 1",
                    dims_text(&n->type).s, step, dim_text(t, n->type.dim[axis]).s);
    n->type.dim[axis] = dims_subtract(t, stop, start);
    return n->type.dim[axis] == DIM_NONE ? fail_status() : CODA_OK;
}

coda_status infer_slice(const graph *g, struct node *n)
{
    const struct type *x = operand_type(g, n, SLICE_X);
    struct attr_slice *a = &n->attr.slice;
    coda_status s = find_axis(n, "x", x, &a->axis);
    if (s != CODA_OK) return s;
    int64_t axis = a->axis, start = a->start, stop = a->stop, step = a->step;
    if (graph_packed(g, n->in[SLICE_X]) >= 0 && !(dim_is_number(start) && dim_is_number(stop)))
        return fail(CODA_E_INVALID, "slice: x is packed; start %s and stop %s must be numbers",
                    dim_text(g->dims, start).s, dim_text(g->dims, stop).s);
    if (!is_range(g->dims, start, stop, x->dim[axis]) || step < 1)
        return fail(CODA_E_INVALID,
                    "slice: start %s, stop %s, step %" PRId64 "; need 0 <= start <= stop <= %s and step >= 1",
                    dim_text(g->dims, start).s, dim_text(g->dims, stop).s, step,
                    dim_text(g->dims, x->dim[axis]).s);
    n->type = *x;
    if (!dim_is_number(start) || !dim_is_number(stop) || !dim_is_number(x->dim[axis]))
        return slice_of_symbols(n, start, stop);
    /* A longer step finds one element in any case; strides times a step fit as the tensor itself does. */
    a->step = step = MIN(step, MAX(x->dim[axis], 2));
    n->type.dim[axis] = (stop - start) / step + ((stop - start) % step != 0);
    return CODA_OK;
}

/* Operand i of a concat beside operand 0. */
static coda_status check_part(const graph *g, const struct node *n, int i)
{
    const struct type *first = operand_type(g, n, 0), *x = operand_type(g, n, i);
    const struct attr_concat *a = &n->attr.concat;
    struct type expect = *first;
    if (!a->interleave && x->rank == expect.rank) expect.dim[a->axis] = x->dim[a->axis];
    if (type_equal(&expect, x)) return CODA_OK;
    if (a->interleave)
        return fail(CODA_E_INVALID, "%s: operand 0 is %s but operand %d is %s; only equal types interleave",
                    node_word(n), type_text(first).s, i, type_text(x).s);
    return fail(CODA_E_INVALID,
                "concat: operand 0 is %s but operand %d is %s; only axis %" PRId64 " may differ",
                type_text(first).s, i, type_text(x).s, a->axis);
}

coda_status infer_concat(const graph *g, struct node *n)
{
    struct type t = *operand_type(g, n, 0);
    coda_status s = need_range(n, "interleave", n->attr.concat.interleave, 0, 1);
    if (s == CODA_OK) s = find_axis(n, "operand 0", &t, &n->attr.concat.axis);
    if (s != CODA_OK) return s;
    int64_t axis = n->attr.concat.axis;
    for (int i = 1; i < n->nin; i++) {
        if ((s = check_part(g, n, i)) != CODA_OK) return s;
        t.dim[axis] = dims_add(g->dims, t.dim[axis], operand_type(g, n, i)->dim[axis]);
        if (t.dim[axis] == DIM_NONE)
            return fail(fail_status(), "%s: axis %" PRId64 ": %s", node_word(n), axis, fail_message());
    }
    n->type = t;
    return CODA_OK;
}

/* What the others leave, in the place of a dimension of -1. */
static coda_status find_rest(const struct type *x, struct attr_reshape *a)
{
    struct type others = {.dtype = x->dtype, .rank = (int)a->rank, .dims = x->dims};
    int at = -1;
    for (int i = 0; i < others.rank; i++) {
        others.dim[i] = a->dim[i] == DIM_REST ? 1 : a->dim[i];
        if (a->dim[i] != DIM_REST) continue;
        if (at >= 0)
            return fail(CODA_E_INVALID, "reshape: x is %s; dimensions %d and %d are -1, and one may be",
                        dims_text(x).s, at, i);
        at = i;
    }
    coda_status s = at < 0 ? CODA_OK : type_check("reshape", "result", &others);
    if (at < 0 || s != CODA_OK) return s;
    int64_t before = type_count(x), after = type_count(&others);
    if (before == DIM_NONE || after == DIM_NONE) return fail_status();
    a->dim[at] = dims_divide(x->dims, before, after);
    if (a->dim[at] != DIM_NONE) return CODA_OK;
    if (fail_status() == CODA_E_MEMORY) return CODA_E_MEMORY;
    return fail(
        CODA_E_INVALID,
        "reshape: x is %s, %s elements; the dimensions beside the -1 make %s, which does not divide them",
        dims_text(x).s, dim_text(x->dims, before).s, dim_text(x->dims, after).s);
}

coda_status infer_reshape(const graph *g, struct node *n)
{
    const struct type *x = operand_type(g, n, RESHAPE_X);
    struct attr_reshape *a = &n->attr.reshape;
    coda_status s = need_range(n, "rank", a->rank, 0, CODA_MAX_RANK);
    if (s == CODA_OK) s = find_rest(x, a);
    if (s != CODA_OK) return s;
    n->type = (struct type){x->dtype, (int)a->rank, {0}, g->dims};
    for (int i = 0; i < CODA_MAX_RANK; i++) {
        if (i >= n->type.rank) a->dim[i] = 0;
        n->type.dim[i] = a->dim[i];
    }
    if ((s = type_check("reshape", "result", &n->type)) != CODA_OK) return s;
    int64_t before = type_count(x), after = type_count(&n->type);
    if (before == DIM_NONE || after == DIM_NONE) return fail_status();
    if (before == after) return CODA_OK;
    return fail(CODA_E_INVALID, "reshape: x is %s, %s elements, but %s has %s%s", dims_text(x).s,
                dim_text(g->dims, before).s, dims_text(&n->type).s, dim_text(g->dims, after).s,
                a->rank ? "" : "; rank is 0, the number of dimensions");
}

coda_status infer_transpose(const graph *g, struct node *n)
{
    const struct type *x = operand_type(g, n, TRANSPOSE_X);
    int64_t *perm = n->attr.transpose.perm;
    unsigned seen = 0;
    n->type = *x;
    for (int i = 0; i < x->rank; i++) {
        int64_t p = perm[i] < 0 ? perm[i] + x->rank : perm[i];
        if (p < 0 || p >= x->rank || seen >> p & 1)
            return fail(CODA_E_INVALID, "transpose: x is %s; p%d = %" PRId64 " makes no permutation",
                        dims_text(x).s, i, perm[i]);
        perm[i] = p;
        seen |= 1u << p;
        n->type.dim[i] = x->dim[p];
    }
    for (int i = x->rank; i < CODA_MAX_RANK; i++) perm[i] = 0;
    return CODA_OK;
}
