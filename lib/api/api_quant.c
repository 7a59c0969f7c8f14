/*
 * api_quant.c -- activations in fp8, out of nothing but calls of coda.h:
 *
 *     scale = max |x| / largest        over a row, or over `columns` of its columns
 *     q     = x / max(scale, LEAST)    rounded to fp8
 *
 * The row's largest becomes the dtype's largest. LEAST keeps a row of zeros from 0 / 0.
 */
#include "api.h"

#define LEAST                                                                                                \
    0x1p-120f /* times 57344 it is still above fp32's smallest normal number, and x / LEAST finite */

struct quantized {
    graph *g;
    coda_value x;
    const struct type *type;
    float largest;
    int64_t columns; /* of a scale */
};

static float largest_of(coda_dtype t) { return t == CODA_F8E4M3 ? 448 : t == CODA_F8E5M2 ? 57344 : 0; }

static coda_status check(const struct quantized *q, coda_dtype t, int64_t columns, const coda_value *scale)
{
    const struct type *x = q->type;
    if (!scale) return fail(CODA_E_INVALID, "quantize_rows: scale is NULL");
    if (!q->largest)
        return fail(CODA_E_INVALID, "quantize_rows: t is %s; must be f8e4m3 or f8e5m2",
                    dtype_bits(t) ? dtype_name(t) : "no dtype");
    if (!x) return fail(CODA_E_INVALID, "quantize_rows: x is no value");
    if (!dtype_is_float(x->dtype) || x->rank < 1 || !dim_is_number(type_columns(x)))
        return fail(
            CODA_E_INVALID,
            "quantize_rows: x is %s; it must be f32, bf16 or f16 of rank 1 or more, its columns a number",
            type_text(x).s);
    if (columns < 0 || (columns && (columns > type_columns(x) || type_columns(x) % columns)))
        return fail(CODA_E_INVALID,
                    "quantize_rows: x is %s; a scale of %lld columns needs a multiple of them",
                    dims_text(x).s, (long long)columns);
    if (columns && columns < type_columns(x) && x->rank == CODA_MAX_RANK)
        return fail(CODA_E_INVALID, "quantize_rows: x is %s; groups of columns are one dimension more, %d",
                    dims_text(x).s, CODA_MAX_RANK + 1);
    return CODA_OK;
}

/* x [.., K] as [.., K / columns, columns], where a row has several scales. */
static struct type in_groups(const struct quantized *q)
{
    struct type t = *q->type;
    if (q->columns == type_columns(&t)) return t;
    t.dim[t.rank] = q->columns;
    t.dim[t.rank - 1] /= q->columns;
    t.rank++;
    return t;
}

CODA_API coda_value coda_quantize_rows(coda_graph *g, coda_value x, coda_dtype t, int64_t columns,
                                       coda_value *scale)
{
    if (scale) *scale = CODA_NONE;
    if (!build_ready(g, "quantize_rows")) return CODA_NONE;
    int index = build_index(g, "quantize_rows", x);
    if (index < -1) return CODA_NONE;
    struct quantized q = {g, x, index < 0 ? NULL : &g->node[index].type, largest_of(t), columns};
    if (check(&q, t, columns, scale) != CODA_OK) return build_refuse(g, NAMES("x"), OPERANDS(x)), CODA_NONE;
    if (!columns) q.columns = type_columns(q.type);
    const struct type whole = *q.type, split = in_groups(&q);
    bool groups = split.rank > whole.rank;
    if (groups) x = coda_reshape(g, x, split.rank, split.dim); /* of what is in memory, not of a cast */
    if (whole.dtype != CODA_F32) x = coda_cast(g, x, CODA_F32);
    coda_value most = coda_row_max(g, coda_abs(g, x));
    coda_value s = coda_div(g, most, coda_constant(g, CODA_F32, q.largest));
    coda_value y = coda_cast(g, coda_div(g, x, coda_maximum(g, s, coda_constant(g, CODA_F32, LEAST))), t);
    *scale = groups ? coda_reshape(g, s, whole.rank, split.dim) : s;
    return groups ? coda_reshape(g, y, whole.rank, whole.dim) : y;
}
