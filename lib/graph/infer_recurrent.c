/* infer_recurrent.c -- the types of what carries a state along a sequence: causal convolution, the gated
 * delta rule. */
#include "infer_recurrent.h"

#include <inttypes.h>
#include <math.h>

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

/* *want is a state of one sequence; it becomes that of all, of the operand's dtype if it is there. */
static coda_status find_state(const graph *g, const struct node *n, int operand, const struct tokens *of,
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

/* ---- The gated delta rule ---- */

enum { MOST_KEYS = 256 };

/* Has the operand the rows of q, and so many columns, or so many? */
static coda_status check_rows(const graph *g, const struct node *n, int operand, int64_t columns, int64_t or)
{
    const struct type *q = operand_type(g, n, DELTA_Q), *t = operand_type(g, n, operand);
    const char *name = op_info[n->op].name[operand];
    bool rows = t->rank == q->rank && dims_equal(t, q, q->rank - 1);
    if (dtype_is_float(t->dtype) && rows && (type_columns(t) == columns || type_columns(t) == or))
        return CODA_OK;
    return fail(CODA_E_INVALID,
                "delta: q is %s but %s is %s; it must be f32, bf16 or f16 with q's rows and %" PRId64
                "%s%s columns",
                dims_text(q).s, name, type_text(t).s, columns, columns == or ? "" : " or ",
                columns == or ? "" : dim_text(g->dims, or).s);
}

/* Heads, and what their columns are. */
static coda_status check_heads(const graph *g, struct node *n, int64_t *keys, int64_t *values)
{
    const struct type *q = operand_type(g, n, DELTA_Q), *k = operand_type(g, n, DELTA_K),
                      *v = operand_type(g, n, DELTA_V);
    struct attr_delta *a = &n->attr.delta;
    if (!a->heads) a->heads = 1;
    if (!a->key_heads) a->key_heads = a->heads;
    if (a->heads < 1 || a->key_heads < 1 || a->heads % a->key_heads)
        return fail(CODA_E_INVALID,
                    "delta: heads is %" PRId64 ", key_heads %" PRId64
                    "; both positive, and key_heads divides heads",
                    a->heads, a->key_heads);
    if (k->dtype != q->dtype || v->dtype != q->dtype || k->rank != q->rank || !dims_equal(k, q, q->rank))
        return fail(CODA_E_INVALID, "delta: q is %s, k %s, v %s; k must be like q, v of its dtype",
                    type_text(q).s, type_text(k).s, type_text(v).s);
    *keys = type_columns(q) / a->key_heads, *values = type_columns(v) / a->heads;
    if (*keys < 1 || *keys > MOST_KEYS || type_columns(q) % a->key_heads)
        return fail(CODA_E_INVALID, "delta: q is %s; %" PRId64 " key_heads must have 1..%d columns each",
                    dims_text(q).s, a->key_heads, MOST_KEYS);
    if (*values < 1 || type_columns(v) % a->heads)
        return fail(CODA_E_INVALID, "delta: v is %s; %" PRId64 " heads must divide its columns",
                    dims_text(v).s, a->heads);
    return check_rows(g, n, DELTA_V, type_columns(v), type_columns(v));
}

static coda_status check_numbers(struct node *n, int64_t keys)
{
    struct attr_delta *a = &n->attr.delta;
    if (a->scale == 0) a->scale = 1.0f / sqrtf((float)keys);
    if (!isfinite(a->scale))
        return fail(CODA_E_INVALID, "delta: scale is %g; it must be finite", (double)a->scale);
    coda_status s = need_range(n, "norm", a->norm, 0, 1);
    return s == CODA_OK ? need_eps(n, a->eps) : s;
}

coda_status infer_delta(const graph *g, struct node *n)
{
    struct tokens of;
    int64_t keys = 0, values = 0;
    coda_status s = find_tokens(g, n, DELTA_Q, DELTA_STARTS, &of);
    for (int i = DELTA_K; i <= DELTA_BETA && s == CODA_OK; i++)
        s = need_float(n, i, operand_type(g, n, i), 2);
    if (s == CODA_OK) s = check_heads(g, n, &keys, &values);
    if (s == CODA_OK) s = check_numbers(n, keys);
    if (s != CODA_OK) return s;
    int64_t heads = n->attr.delta.heads, rows = mul_counts(heads, keys);
    if ((s = check_rows(g, n, DELTA_DECAY, heads, rows)) != CODA_OK) return s;
    if ((s = check_rows(g, n, DELTA_BETA, heads, heads)) != CODA_OK) return s;
    struct type after = {.dtype = CODA_F32, .rank = 3, .dim = {heads, keys, values}};
    if ((s = find_state(g, n, DELTA_BEFORE, &of, &after)) != CODA_OK) return s;
    n->type = node_result(n) ? after : *operand_type(g, n, DELTA_V);
    return CODA_OK;
}
