/* infer_view.c -- the types of what moves data: slice, concat, reshape, transpose. */
#include "infer.h"

#include <inttypes.h>

coda_status infer_slice(const graph *g, struct node *n)
{
    const struct type *x = operand_type(g, n, 0);
    struct attr_slice *a = &n->attr.slice;
    int64_t axis = a->axis, start = a->start, stop = a->stop, step = a->step;
    if (axis < 0 || axis >= x->rank)
        return fail(CODA_E_INVALID, "slice: x is %s; it has no axis %" PRId64, dims_text(x).s, axis);
    if (start < 0 || start > stop || stop > x->dim[axis] || step < 1)
        return fail(CODA_E_INVALID,
                    "slice: start %" PRId64 ", stop %" PRId64 ", step %" PRId64
                    "; need 0 <= start <= stop <= %" PRId64 " and step >= 1",
                    start, stop, step, x->dim[axis]);
    /* A longer step finds one element in any case; strides times a step fit as the tensor itself does. */
    a->step = step = MIN(step, MAX(x->dim[axis], 2));
    n->type = *x;
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
    int64_t axis = n->attr.concat.axis;
    coda_status s = need_range(n, "interleave", n->attr.concat.interleave, 0, 1);
    if (s != CODA_OK) return s;
    if (axis < 0 || axis >= t.rank)
        return fail(CODA_E_INVALID, "%s: operand 0 is %s; it has no axis %" PRId64, node_word(n),
                    dims_text(&t).s, axis);
    for (int i = 1; i < n->nin; i++) {
        if ((s = check_part(g, n, i)) != CODA_OK) return s;
        if (__builtin_add_overflow(t.dim[axis], operand_type(g, n, i)->dim[axis], &t.dim[axis]))
            return fail(CODA_E_INVALID, "%s: axis %" PRId64 " does not fit in 63 bits", node_word(n), axis);
    }
    n->type = t;
    return CODA_OK;
}

coda_status infer_reshape(const graph *g, struct node *n)
{
    const struct type *x = operand_type(g, n, 0);
    struct attr_reshape *a = &n->attr.reshape;
    coda_status s = need_range(n, "rank", a->rank, 0, CODA_MAX_RANK);
    if (s != CODA_OK) return s;
    n->type = (struct type){x->dtype, (int)a->rank, {0}};
    for (int i = 0; i < CODA_MAX_RANK; i++) {
        if (i >= n->type.rank) a->dim[i] = 0;
        n->type.dim[i] = a->dim[i];
    }
    if ((s = type_check("reshape", "result", &n->type)) != CODA_OK) return s;
    if (type_elements(&n->type) == type_elements(x)) return CODA_OK;
    return fail(CODA_E_INVALID, "reshape: x is %s, %" PRId64 " elements, but %s has %" PRId64, dims_text(x).s,
                type_elements(x), dims_text(&n->type).s, type_elements(&n->type));
}

coda_status infer_transpose(const graph *g, struct node *n)
{
    const struct type *x = operand_type(g, n, 0);
    int64_t *perm = n->attr.transpose.perm;
    unsigned seen = 0;
    n->type = *x;
    for (int i = 0; i < x->rank; i++) {
        int64_t p = perm[i];
        if (p < 0 || p >= x->rank || seen >> p & 1)
            return fail(CODA_E_INVALID, "transpose: x is %s; p%d = %" PRId64 " makes no permutation",
                        dims_text(x).s, i, p);
        seen |= 1u << p;
        n->type.dim[i] = x->dim[p];
    }
    for (int i = x->rank; i < CODA_MAX_RANK; i++) perm[i] = 0;
    return CODA_OK;
}
