/* infer_rows.c -- the types of what is made of whole rows or columns: statistics, norms, losses, the least
 * and the largest elements. */
#include "infer.h"

#include <inttypes.h>

/* ---- Statistics ---- */

/* A key is one value for each row: [..] as x's rows, or [..,1] that may repeat. */
static bool is_row_key(const struct type *x, const struct type *key)
{
    if (key->rank == x->rank - 1) return dims_equal(x, key, key->rank);
    if (key->rank != x->rank || type_columns(key) != 1) return false;
    for (int i = 0; i + 1 < x->rank; i++)
        if (key->dim[i] != x->dim[i] && key->dim[i] != 1) return false;
    return true;
}

/* Statistics of the columns of each matrix that the last two dimensions are. */
static coda_status infer_reduced_columns(const graph *g, struct node *n)
{
    const struct type *x = operand_type(g, n, REDUCE_X);
    if (n->prim->inputs > 1)
        return fail(CODA_E_INVALID, "%s: its key is one value for each row; it has none for columns",
                    node_word(n));
    if (n->prim->state > PRIM_MAX_COLUMN_STATE)
        return fail(CODA_E_INVALID, "%s: its state has %d floats; of columns it may have %d", node_word(n),
                    n->prim->state, PRIM_MAX_COLUMN_STATE);
    if (x->rank < 2)
        return fail(CODA_E_INVALID, "%s: x is %s; a column needs rank 2 or more", node_word(n),
                    dims_text(x).s);
    n->type = *x;
    n->type.dtype = CODA_F32;
    n->type.dim[x->rank - 2] = 1;
    return need_fixed_columns(n, "x", x);
}

coda_status infer_reduce(const graph *g, struct node *n)
{
    const struct type *x = operand_type(g, n, REDUCE_X), *key = operand_type(g, n, REDUCE_KEY);
    coda_status s = need_range(n, "columns", n->attr.reduce.columns, 0, 1);
    if (s != CODA_OK) return s;
    if (n->attr.reduce.columns) return infer_reduced_columns(g, n);
    if (x->rank < 1)
        return fail(CODA_E_INVALID, "%s: x is %s; it needs rank 1 or more", node_word(n), dims_text(x).s);
    if (key && !is_row_key(x, key))
        return fail(CODA_E_INVALID, "%s: x is %s but the key is %s; it must be one value for each row",
                    node_word(n), dims_text(x).s, dims_text(key).s);
    n->type = *x;
    n->type.dtype = CODA_F32;
    n->type.dim[x->rank - 1] = 1;
    return need_fixed_columns(n, "x", x);
}

/* ---- Norms ---- */

static coda_status infer_columns(const graph *g, struct node *n)
{
    const struct type *x = operand_type(g, n, LAYER_NORM_X);
    coda_status s = need_float(n, LAYER_NORM_X, x, 1);
    if (s == CODA_OK) s = need_columns(g, n, LAYER_NORM_GAIN, x);
    if (s == CODA_OK) s = need_columns(g, n, LAYER_NORM_BIAS, x);
    n->type = *x;
    return s;
}

coda_status infer_rms_norm(const graph *g, struct node *n)
{
    coda_status s = infer_columns(g, n);
    return s == CODA_OK ? need_eps(n, n->attr.rms_norm.eps) : s;
}

coda_status infer_layer_norm(const graph *g, struct node *n)
{
    coda_status s = infer_columns(g, n);
    return s == CODA_OK ? need_eps(n, n->attr.layer_norm.eps) : s;
}

coda_status infer_softmax(const graph *g, struct node *n) { return infer_columns(g, n); }

coda_status infer_log_softmax(const graph *g, struct node *n)
{
    n->type = *operand_type(g, n, LOG_SOFTMAX_X);
    return need_float(n, LOG_SOFTMAX_X, &n->type, 1);
}

/* ---- Losses ---- */

/* Losses have the shape of the targets, or [1] when they are reduced. The ignored index travels as a
 * float. */
coda_status infer_cross_entropy(const graph *g, struct node *n)
{
    const struct type *x = operand_type(g, n, CROSS_ENTROPY_LOGITS),
                      *t = operand_type(g, n, CROSS_ENTROPY_TARGETS);
    const struct attr_cross_entropy *a = &n->attr.cross_entropy;
    coda_status s = need_float(n, CROSS_ENTROPY_LOGITS, x, 1);
    if (s == CODA_OK) s = need_range(n, "reduction", a->reduction, LOSS_ROWS, LOSS_SUM);
    if (s == CODA_OK) s = need_range(n, "ignore", a->ignore, INT32_MIN, INT32_MAX);
    if (s != CODA_OK) return s;
    if ((int64_t)(float)a->ignore != a->ignore)
        return fail(CODA_E_INVALID, "cross_entropy: ignore is %" PRId64 "; it has no exact fp32 value",
                    a->ignore);
    if (!dtype_is_index(t->dtype) || t->rank != x->rank - 1 || !dims_equal(x, t, t->rank))
        return fail(CODA_E_INVALID,
                    "cross_entropy: logits are %s but targets are %s; must be i32 or i64, one for"
                    " each row",
                    dims_text(x).s, type_text(t).s);
    n->type = *t;
    if (a->reduction != LOSS_ROWS) n->type = (struct type){.rank = 1, .dim = {1}};
    n->type.dtype = CODA_F32;
    return CODA_OK;
}

/* ---- The largest of a row, and the least that is kept ---- */

coda_status infer_top_k(const graph *g, struct node *n)
{
    const struct type *x = operand_type(g, n, TOP_K_X);
    int64_t k = n->attr.top_k.k;
    coda_status s = need_float(n, TOP_K_X, x, 1);
    if (s == CODA_OK) s = need_range(n, "k", k, 1, TOP_K_MOST);
    if (s != CODA_OK) return s;
    if (type_columns(x) < k || type_columns(x) > INT32_MAX)
        return fail(CODA_E_INVALID, "top_k: x is %s; k is %" PRId64 ", and it needs %" PRId64 "..%d columns",
                    dims_text(x).s, k, k, INT32_MAX);
    n->type = *x;
    n->type.dim[x->rank - 1] = k;
    if (node_result(n)) n->type.dtype = CODA_I32;
    return CODA_OK;
}

enum { NUCLEUS_COLUMNS = 1 << 24 }; /* which weights in units of 2^-38 add up to less than 2^63 of */

/* One number for each row, or for all. */
static coda_status need_rows(const graph *g, const struct node *n, int operand, const struct type *x,
                             coda_dtype dtype)
{
    const struct type *v = operand_type(g, n, operand);
    const char *name = op_info[n->op].name[operand];
    struct type rows = *x;
    if (!v) return CODA_OK;
    if (v->dtype != dtype && !(dtype == CODA_I32 && v->dtype == CODA_I64))
        return fail(CODA_E_INVALID, "%s: %s is %s; it must be %s", node_word(n), name, type_text(v).s,
                    dtype == CODA_I32 ? "i32 or i64" : dtype_name(dtype));
    rows.dim[x->rank - 1] = 1;
    bool one = v->rank == 0 || type_elements(v) == 1;
    bool same = v->rank == x->rank - 1 || (v->rank == x->rank && type_columns(v) == 1);
    if (one || (same && dims_equal(&rows, v, x->rank - 1))) return CODA_OK;
    return fail(CODA_E_INVALID, "%s: x is %s but %s is %s; it must be one number for each row, or for all",
                node_word(n), dims_text(x).s, name, dims_text(v).s);
}

coda_status infer_nucleus(const graph *g, struct node *n)
{
    const struct type *x = operand_type(g, n, NUCLEUS_X);
    coda_status s = need_float(n, NUCLEUS_X, x, 1);
    for (int i = NUCLEUS_X + 1; i < NUCLEUS_OPERANDS && s == CODA_OK; i++)
        s = need_rows(g, n, i, x, i == NUCLEUS_TOP_K ? CODA_I32 : CODA_F32);
    if (s != CODA_OK) return s;
    if (type_columns(x) < 1 || type_columns(x) > NUCLEUS_COLUMNS)
        return fail(CODA_E_INVALID, "%s: x is %s; it needs 1..%d columns", node_word(n), dims_text(x).s,
                    NUCLEUS_COLUMNS);
    n->type = *x;
    n->type.dtype = CODA_F32;
    n->type.dim[x->rank - 1] = 1;
    return CODA_OK;
}
