/* infer_state.c -- the types of states, and of what writes to them. */
#include "infer.h"
#include "view.h"

#include <inttypes.h>

enum { MOST_SLOTS = 1 << 24 }; /* a slot is an fp32 number in kernels */

/* What is written to is a state, or one that was written to: no view of it. */
static coda_status need_version(const graph *g, const struct node *n)
{
    const struct node *s = &g->node[n->in[0]];
    if (s->op == OP_STATE || op_is_version(s->op)) return CODA_OK;
    return fail(CODA_E_INVALID, "%s: the first operand, %s, is no state but the result of %s", node_word(n),
                type_text(&s->type).s, s->prim ? s->prim->name : op_info[s->op].text);
}

coda_status infer_append(const graph *g, struct node *n)
{
    coda_status s = need_version(g, n);
    if (s != CODA_OK) return s;
    const struct type *state = operand_type(g, n, 0), *rows = operand_type(g, n, 1),
                      *slots = operand_type(g, n, 2);
    int64_t row;
    if (state->rank < 2 || !view_collapse(state, g->node[n->in[0]].stride, 0, state->rank - 1, &row))
        return fail(CODA_E_INVALID, "append: the state is %s; it needs rank 2 or more, and rows evenly apart",
                    dims_text(state).s);
    if (type_rows(state) > MOST_SLOTS)
        return fail(CODA_E_INVALID, "append: the state is %s, %" PRId64 " rows; most are %d",
                    dims_text(state).s, type_rows(state), (int)MOST_SLOTS);
    if (rows->dtype != state->dtype)
        return fail(CODA_E_INVALID, "append: the state is %s but rows are %s; coda_cast them",
                    type_text(state).s, type_text(rows).s);
    if (rows->rank < 1 || type_columns(rows) != type_columns(state))
        return fail(CODA_E_INVALID, "append: the state is %s but rows are %s; their columns differ",
                    dims_text(state).s, dims_text(rows).s);
    if (slots->dtype != CODA_I32 || slots->rank != rows->rank - 1 || !dims_equal(rows, slots, slots->rank))
        return fail(CODA_E_INVALID, "append: rows are %s but slots are %s; must be i32, one for each row",
                    dims_text(rows).s, type_text(slots).s);
    n->type = *state;
    return CODA_OK;
}

coda_status infer_assign(const graph *g, struct node *n)
{
    coda_status s = need_version(g, n);
    if (s != CODA_OK) return s;
    const struct type *state = operand_type(g, n, 0), *value = operand_type(g, n, 1);
    if (!type_equal(state, value))
        return fail(CODA_E_INVALID, "assign: the state is %s but the value is %s; they must be equal",
                    type_text(state).s, type_text(value).s);
    n->type = *state;
    return CODA_OK;
}
