/* infer_needs.c -- what rules are made of: checks of an operand or an attribute, whose failures name both. */
#include "infer.h"

#include <inttypes.h>
#include <math.h>
#include <string.h>

const char *node_word(const struct node *n)
{
    if (n->op == OP_CONCAT && n->attr.concat.interleave == 1) return "interleave";
    return node_text(n);
}

const struct type *operand_type(const graph *g, const struct node *n, int i)
{
    return i < n->nin && n->in[i] >= 0 ? &g->node[n->in[i]].type : NULL;
}

bool dims_equal(const struct type *a, const struct type *b, int rank)
{
    return memcmp(a->dim, b->dim, sizeof a->dim[0] * (size_t)rank) == 0;
}

coda_status need_any_float(const struct node *n, int operand, const struct type *t, int rank)
{
    const char *name = op_info[n->op].name[operand];
    if (!dtype_is_float(t->dtype))
        return fail(CODA_E_INVALID, "%s: %s is %s; it must be f32, bf16 or f16", node_word(n), name,
                    type_text(t).s);
    if (t->rank < rank)
        return fail(CODA_E_INVALID, "%s: %s is %s; it needs rank %d or more", node_word(n), name,
                    dims_text(t).s, rank);
    return CODA_OK;
}

coda_status need_float(const struct node *n, int operand, const struct type *t, int rank)
{
    coda_status s = need_any_float(n, operand, t, rank);
    return s == CODA_OK ? need_fixed_columns(n, op_info[n->op].name[operand], t) : s;
}

coda_status need_fixed_columns(const struct node *n, const char *name, const struct type *t)
{
    if (dim_is_number(type_columns(t))) return CODA_OK;
    return fail(CODA_E_INVALID, "%s: %s is %s; its columns must be a number, not %s", node_word(n), name,
                dims_text(t).s, dim_text(t->dims, type_columns(t)).s);
}

coda_status need_columns(const graph *g, const struct node *n, int operand, const struct type *x)
{
    const struct type *v = operand_type(g, n, operand);
    if (!v) return CODA_OK;
    if (v->rank != 1 || v->dim[0] != type_columns(x))
        return fail(CODA_E_INVALID, "%s: x is %s but %s is %s; it must be [%" PRId64 "]", node_word(n),
                    dims_text(x).s, op_info[n->op].name[operand], dims_text(v).s, type_columns(x));
    return need_float(n, operand, v, 1);
}

coda_status need_range(const struct node *n, const char *name, int64_t value, int64_t least, int64_t most)
{
    if (value >= least && value <= most) return CODA_OK;
    return fail(CODA_E_INVALID, "%s: %s is %" PRId64 "; must be %" PRId64 "..%" PRId64, node_word(n), name,
                value, least, most);
}

coda_status need_eps(const struct node *n, float eps)
{
    if (isfinite(eps) && eps >= 0) return CODA_OK;
    return fail(CODA_E_INVALID, "%s: eps is %g; it must be finite and >= 0", node_word(n), (double)eps);
}

coda_status need_dtype(const struct node *n, int64_t t)
{
    if (t >= 0 && t <= INT32_MAX && dtype_bits((coda_dtype)t)) return CODA_OK;
    return fail(CODA_E_INVALID, "%s: %" PRId64 " is no dtype", node_word(n), t);
}
