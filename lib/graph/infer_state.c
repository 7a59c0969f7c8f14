/* infer_state.c -- the types of states, and of what writes to them. */
#include "infer.h"
#include "view.h"

#include <inttypes.h>

enum { MOST_SLOTS = 1 << 24 }; /* a slot is an fp32 number in kernels */

/* What is written to is a state, or one that was written to: no view of it. */
static coda_status need_version(const graph *g, const struct node *n)
{
    const struct node *s = &g->node[n->in[VERSION_OF]];
    if (s->op == OP_STATE || op_is_version(s->op)) return CODA_OK;
    return fail(CODA_E_INVALID, "%s: the first operand, %s, is no state but the result of %s", node_word(n),
                type_text(&s->type).s, node_text(s));
}

/* Rows and columns of the slots of a state. */
static coda_status slots_of(const struct node *n, const struct type *state, const int64_t *stride,
                            int64_t *slots, int64_t *columns)
{
    int64_t row;
    coda_status s = need_range(n, "layout", n->attr.append.layout, CODA_LAYOUT_NHD, CODA_LAYOUT_HND);
    if (s != CODA_OK) return s;
    bool by_heads = n->attr.append.layout == CODA_LAYOUT_HND;
    if (by_heads && (state->rank != 4 || !dim_is_number(state->dim[1])))
        return fail(CODA_E_INVALID,
                    "append: the state is %s; of layout HND it is [pages,heads,page,head_dim]",
                    dims_text(state).s);
    if (!by_heads && (state->rank < 2 || !view_collapse(state, stride, 0, state->rank - 1, &row)))
        return fail(CODA_E_INVALID, "append: the state is %s; it needs rank 2 or more, and rows evenly apart",
                    dims_text(state).s);
    if ((s = need_fixed_columns(n, "the state", state)) != CODA_OK) return s;
    *slots = by_heads ? dims_times(state->dims, state->dim[0], state->dim[2]) : type_rows(state);
    *columns = type_columns(state) * (by_heads ? state->dim[1] : 1);
    if (*slots == DIM_NONE) return fail_status();
    if (dims_most(state->dims, *slots) <= MOST_SLOTS) return CODA_OK;
    return fail(CODA_E_INVALID, "append: the state is %s, %s %s; most are %d", dims_text(state).s,
                dim_text(state->dims, *slots).s, by_heads ? "slots" : "rows", (int)MOST_SLOTS);
}

/* One number, or one for each of the heads that share out the columns. */
static coda_status check_scale(const struct type *state, const struct type *scale, int64_t columns)
{
    if (!scale) return CODA_OK;
    if (state->dtype != CODA_F8E4M3)
        return fail(CODA_E_INVALID, "append: the state is %s; rows are scaled for f8e4m3 alone",
                    type_text(state).s);
    int64_t n = scale->rank == 1 ? scale->dim[0] : 0;
    if (scale->dtype == CODA_F32 && n > 0 && columns % n == 0) return CODA_OK;
    return fail(CODA_E_INVALID,
                "append: the scale is %s; must be f32[1], or one for each head of %" PRId64 " columns",
                type_text(scale).s, columns);
}

coda_status infer_append(const graph *g, struct node *n)
{
    int64_t count = 0, columns = 0;
    coda_status s = need_version(g, n);
    if (s != CODA_OK) return s;
    const struct type *state = operand_type(g, n, APPEND_STATE), *rows = operand_type(g, n, APPEND_ROWS),
                      *slots = operand_type(g, n, APPEND_SLOTS);
    if ((s = slots_of(n, state, g->node[n->in[APPEND_STATE]].stride, &count, &columns)) != CODA_OK) return s;
    bool narrows = state->dtype == CODA_F8E4M3 && dtype_is_float(rows->dtype);
    if (rows->dtype != state->dtype && !narrows)
        return fail(CODA_E_INVALID, "append: the state is %s but rows are %s; %s", type_text(state).s,
                    type_text(rows).s,
                    dtype_is_storage(state->dtype) && state->dtype != CODA_F8E4M3
                        ? "rows of its dtype alone are appended"
                        : "coda_cast them");
    if (rows->rank < 1 || type_columns(rows) != columns)
        return fail(CODA_E_INVALID, "append: the state is %s but rows are %s; their columns differ",
                    dims_text(state).s, dims_text(rows).s);
    if (!dtype_is_index(slots->dtype) || slots->rank != rows->rank - 1 ||
        !dims_equal(rows, slots, slots->rank))
        return fail(CODA_E_INVALID,
                    "append: rows are %s but slots are %s; must be i32 or i64, one for each row",
                    dims_text(rows).s, type_text(slots).s);
    n->type = *state;
    return check_scale(state, operand_type(g, n, APPEND_SCALE), columns);
}

coda_status infer_assign(const graph *g, struct node *n)
{
    coda_status s = need_version(g, n);
    if (s != CODA_OK) return s;
    const struct type *state = operand_type(g, n, ASSIGN_STATE), *value = operand_type(g, n, ASSIGN_VALUE);
    if (!type_equal(state, value))
        return fail(CODA_E_INVALID, "assign: the state is %s but the value is %s; they must be equal",
                    type_text(state).s, type_text(value).s);
    n->type = *state;
    return CODA_OK;
}
