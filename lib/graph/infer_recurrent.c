/* infer_recurrent.c -- the types of what carries a state along a sequence: causal convolution. */
#include "infer_recurrent.h"

#include <inttypes.h>

coda_status find_tokens(const graph *g, const struct node *n, int operand, int starts, struct tokens *out)
{
    const struct type *x = operand_type(g, n, operand), *s = operand_type(g, n, starts);
    const char *name = op_info[n->op].name[operand];
    coda_status status = need_float(n, operand, x, 2);
    if (status != CODA_OK) return status;
    if (x->rank > 3)
        return fail(CODA_E_INVALID, "%s: %s is %s; must be [B,T,columns] or [T,columns]", node_word(n), name,
                    dims_text(x).s);
    *out = (struct tokens){.batched = x->rank == 3 || s, .sequences = x->rank == 3 ? x->dim[0] : 1};
    if (dims_most(g->dims, x->dim[x->rank - 2]) > INT32_MAX) /* kernels count rows in 32 bits */
        return fail(CODA_E_INVALID, "%s: %s is %s; a sequence has %d rows at most", node_word(n), name,
                    dims_text(x).s, INT32_MAX);
    if (!s) return CODA_OK;
    if (x->rank != 2 || !dtype_is_index(s->dtype) || s->rank != 1 || dims_least(g->dims, s->dim[0]) < 1)
        return fail(CODA_E_INVALID,
                    "%s: %s is %s but starts are %s; %s must be [T,columns], starts i32 or i64[B+1]",
                    node_word(n), name, dims_text(x).s, type_text(s).s, name);
    out->sequences = s->dim[0] > 0 ? s->dim[0] - 1 : dims_subtract(g->dims, s->dim[0], 1);
    return out->sequences == DIM_NONE ? fail_status() : CODA_OK;
}

coda_status find_state(const graph *g, const struct node *n, int operand, const struct tokens *of,
                       struct type *want)
{
    const struct type *s = operand_type(g, n, operand);
    if (of->batched) {
        for (int d = want->rank++; d > 0; d--) want->dim[d] = want->dim[d - 1];
        want->dim[0] = of->sequences;
    }
    want->dims = g->dims;
    if (!s) return CODA_OK;
    want->dtype = s->dtype;
    if (!dtype_is_float(s->dtype) || s->rank != want->rank || !dims_equal(s, want, s->rank))
        return fail(CODA_E_INVALID, "%s: %s is %s; must be f32, bf16 or f16%s", node_word(n),
                    op_info[n->op].name[operand], type_text(s).s, dims_text(want).s);
    return CODA_OK;
}

/* ---- Causal convolution ---- */

enum { LEAST_TAPS = 2, MOST_TAPS = 16 };

coda_status infer_conv1d(const graph *g, struct node *n)
{
    const struct type *x = operand_type(g, n, CONV1D_X), *w = operand_type(g, n, CONV1D_W);
    struct tokens of;
    coda_status s = find_tokens(g, n, CONV1D_X, CONV1D_STARTS, &of);
    if (s == CODA_OK) s = need_float(n, CONV1D_W, w, 1);
    if (s != CODA_OK) return s;
    if (w->rank != 2 || w->dim[0] != type_columns(x) || w->dim[1] < LEAST_TAPS || w->dim[1] > MOST_TAPS)
        return fail(CODA_E_INVALID, "conv1d: x is %s but w is %s; it must be [%" PRId64 ",k], k %d..%d",
                    dims_text(x).s, dims_text(w).s, type_columns(x), LEAST_TAPS, MOST_TAPS);
    struct type after = {.dtype = x->dtype, .rank = 2, .dim = {w->dim[1] - 1, type_columns(x)}};
    if ((s = need_columns(g, n, CONV1D_BIAS, x)) != CODA_OK) return s;
    if ((s = find_state(g, n, CONV1D_BEFORE, &of, &after)) != CODA_OK) return s;
    n->type = node_result(n) ? after : *x;
    return CODA_OK;
}
