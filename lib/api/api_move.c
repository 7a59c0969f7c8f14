/* api_move.c -- calls that move elements, and change nothing of them but their type: rows by id, casts,
 * views, states. */
#include "api.h"

/* ---- Rows by id, casts and views ---- */

CODA_API coda_value coda_embedding(coda_graph *g, coda_value table, coda_value ids)
{
    return build_node(g, "embedding", (struct node){.op = OP_EMBEDDING}, OPERANDS(table, ids));
}

CODA_API coda_value coda_row_sums(coda_graph *g, coda_value x, coda_value ids, int64_t rows)
{
    return build_node(g, "row_sums", (struct node){.op = OP_ROW_SUMS, .attr.row_sums = {rows}},
                      OPERANDS(x, ids));
}

CODA_API coda_value coda_cast(coda_graph *g, coda_value x, coda_dtype t)
{
    return build_node(g, "cast", (struct node){.op = OP_CAST, .attr.cast.to = t}, OPERANDS(x));
}

CODA_API coda_value coda_slice(coda_graph *g, coda_value x, int axis, int64_t start, int64_t stop,
                               int64_t step)
{
    struct node n = {.op = OP_SLICE, .attr.slice = {axis, start, stop, step}};
    return build_node(g, "slice", n, OPERANDS(x));
}

static coda_value join(coda_graph *g, const char *call, struct attr_concat a, const coda_value *in, int n)
{
    if (!build_ready(g, call)) return CODA_NONE;
    if (!in || n < 1) {
        graph_poison(g, CODA_E_INVALID, "%s: in is NULL, or n = %d is not positive", call, n);
        return CODA_NONE;
    }
    return build_node(g, call, (struct node){.op = OP_CONCAT, .attr.concat = a}, in, n);
}

CODA_API coda_value coda_concat(coda_graph *g, int axis, const coda_value *in, int n)
{
    return join(g, "concat", (struct attr_concat){.axis = axis}, in, n);
}

CODA_API coda_value coda_interleave(coda_graph *g, int axis, const coda_value *in, int n)
{
    return join(g, "interleave", (struct attr_concat){.axis = axis, .interleave = 1}, in, n);
}

CODA_API coda_value coda_reshape(coda_graph *g, coda_value x, int rank, const int64_t *dims)
{
    struct node n = {.op = OP_RESHAPE, .attr.reshape.rank = rank};
    if (!build_ready(g, "reshape")) return CODA_NONE;
    if (rank > 0 && !dims) {
        fail(CODA_E_INVALID, "reshape: rank is %d but dims are NULL", rank);
        return build_refuse(g, NAMES("x"), OPERANDS(x));
    }
    for (int i = 0; i < rank && i < CODA_MAX_RANK; i++) n.attr.reshape.dim[i] = dims[i];
    return build_node(g, "reshape", n, OPERANDS(x));
}

CODA_API coda_value coda_transpose(coda_graph *g, coda_value x, const int *perm)
{
    struct node n = {.op = OP_TRANSPOSE};
    const struct type *t = value_type(g, x);
    if (!build_ready(g, "transpose")) return CODA_NONE;
    if (t && t->rank && !perm) {
        fail(CODA_E_INVALID, "transpose: x is %s but perm is NULL", dims_text(t).s);
        return build_refuse(g, NAMES("x"), OPERANDS(x));
    }
    for (int i = 0; t && i < t->rank; i++) n.attr.transpose.perm[i] = perm[i];
    return build_node(g, "transpose", n, OPERANDS(x));
}

/* ---- State ---- */

CODA_API coda_value coda_append(coda_graph *g, coda_value state, coda_value rows, coda_value slots,
                                const coda_append_options *opt)
{
    coda_append_options o;
    if (!BUILD_OPTIONS(g, "append", coda_append_options, &o, opt)) return CODA_NONE;
    struct node n = {.op = OP_APPEND, .attr.append = {o.layout}};
    return build_node(g, "append", n, OPERANDS(state, rows, slots, o.scale));
}

CODA_API coda_value coda_assign(coda_graph *g, coda_value state, coda_value value)
{
    return build_node(g, "assign", (struct node){.op = OP_ASSIGN}, OPERANDS(state, value));
}
