/* infer_scan.c -- the types of a selective scan. */
#include "infer_recurrent.h"

#include <inttypes.h>

enum { MOST_STATES = 256 };

/* What the operands say of it. */
struct scan {
    const struct type *x;
    int64_t heads, states, columns; /* columns of x */
    struct tokens tokens;
};

static coda_status check_rows(const graph *g, const struct node *n, const struct scan *s, int operand,
                              bool narrow)
{
    const struct type *t = operand_type(g, n, operand), *x = s->x;
    const char *name = op_info[n->op].name[operand];
    coda_status status = need_float(n, operand, t, 2);
    if (status == CODA_OK) status = need_fixed_columns(n, name, t);
    if (status != CODA_OK) return status;
    if (t->rank != x->rank || !dims_equal(t, x, x->rank - 1))
        return fail(CODA_E_INVALID, "scan: x is %s but %s is %s; all but their columns must be equal",
                    dims_text(x).s, name, dims_text(t).s);
    if (t->dtype == x->dtype || (!narrow && t->dtype == CODA_F32)) return CODA_OK;
    return fail(CODA_E_INVALID, "scan: x is %s but %s is %s; must be %s%s", type_text(x).s, name,
                type_text(t).s, narrow || x->dtype == CODA_F32 ? "" : "f32 or ", dtype_name(x->dtype));
}

static coda_status find_heads(const graph *g, const struct node *n, struct scan *s)
{
    coda_status status = check_rows(g, n, s, SCAN_DT, false);
    if (status != CODA_OK) return status;
    s->columns = type_columns(s->x), s->heads = type_columns(operand_type(g, n, SCAN_DT));
    if (s->heads >= 1 && s->columns >= 1 && s->columns % s->heads == 0) return CODA_OK;
    return fail(CODA_E_INVALID,
                "scan: x has %" PRId64 " columns, dt %" PRId64 "; dt has one for each head of x", s->columns,
                s->heads);
}

/* Columns of b and c are states of groups; with a decay for each state a says how many there are. */
static coda_status find_states(const graph *g, struct node *n, struct scan *s)
{
    const struct type *a = operand_type(g, n, SCAN_A), *b = operand_type(g, n, SCAN_B),
                      *c = operand_type(g, n, SCAN_C);
    int64_t *groups = &n->attr.scan.groups;
    coda_status status = check_rows(g, n, s, SCAN_B, true);
    if (status == CODA_OK) status = check_rows(g, n, s, SCAN_C, true);
    if (status != CODA_OK) return status;
    if (!*groups) *groups = 1;
    if (*groups < 1 || s->heads % *groups)
        return fail(CODA_E_INVALID, "scan: groups is %" PRId64 "; it must divide %" PRId64 " heads", *groups,
                    s->heads);
    s->states = type_columns(b) / *groups;
    if (type_columns(b) != type_columns(c) || type_columns(b) % *groups || s->states < 1 ||
        s->states > MOST_STATES)
        return fail(CODA_E_INVALID,
                    "scan: b has %" PRId64 " columns, c %" PRId64
                    "; both must have 1..%d for each of %" PRId64 " groups",
                    type_columns(b), type_columns(c), MOST_STATES, *groups);
    bool vector = a->rank == 1 || (a->rank == 2 && a->dim[1] == s->states);
    if (a->dtype == CODA_F32 && vector && a->dim[0] == s->heads) return CODA_OK;
    return fail(CODA_E_INVALID, "scan: a is %s; must be f32[%" PRId64 "] or f32[%" PRId64 ",%" PRId64 "]",
                type_text(a).s, s->heads, s->heads, s->states);
}

/* The states of all sequences, each column of x having some; or head by head. */
static struct type state_type(const struct scan *s, bool by_heads)
{
    struct type t = {.dtype = CODA_F32, .dims = s->x->dims};
    if (s->tokens.batched) t.dim[t.rank++] = s->tokens.sequences;
    t.dim[t.rank++] = by_heads ? s->heads : s->columns;
    if (by_heads) t.dim[t.rank++] = s->columns / s->heads;
    t.dim[t.rank++] = s->states;
    return t;
}

static coda_status check_state(const struct scan *s, const struct type *t)
{
    const struct type flat = state_type(s, false), heads = state_type(s, true);
    bool dtype = t && (t->dtype == CODA_F32 || t->dtype == CODA_BF16);
    if (!t || (dtype && t->rank == flat.rank && dims_equal(t, &flat, t->rank)) ||
        (dtype && t->rank == heads.rank && dims_equal(t, &heads, t->rank)))
        return CODA_OK;
    return fail(CODA_E_INVALID, "scan: the state is %s; must be f32 or bf16 %s, or %s", type_text(t).s,
                dims_text(&flat).s, dims_text(&heads).s);
}

static coda_status check_of_heads(const graph *g, const struct node *n, const struct scan *s, int operand)
{
    const struct type *t = operand_type(g, n, operand);
    if (!t || (t->dtype == CODA_F32 && t->rank == 1 && t->dim[0] == s->heads)) return CODA_OK;
    return fail(CODA_E_INVALID, "scan: %s is %s; must be f32[%" PRId64 "], one for each head",
                op_info[n->op].name[operand], type_text(t).s, s->heads);
}

static coda_status check_gate(const struct scan *s, const struct type *t)
{
    if (!t || (t->dtype == s->x->dtype && t->rank == s->x->rank && dims_equal(t, s->x, t->rank)))
        return CODA_OK;
    return fail(CODA_E_INVALID, "scan: x is %s but the gate is %s; they must be equal", type_text(s->x).s,
                type_text(t).s);
}

coda_status infer_scan(const graph *g, struct node *n)
{
    struct scan s = {.x = operand_type(g, n, SCAN_X)};
    coda_status status = find_tokens(g, n, SCAN_X, SCAN_STARTS, &s.tokens);
    if (status == CODA_OK) status = need_fixed_columns(n, "x", s.x);
    if (status == CODA_OK) status = find_heads(g, n, &s);
    if (status == CODA_OK) status = find_states(g, n, &s);
    if (status == CODA_OK) status = check_state(&s, operand_type(g, n, SCAN_STATE));
    if (status == CODA_OK) status = check_of_heads(g, n, &s, SCAN_DT_BIAS);
    if (status == CODA_OK) status = check_of_heads(g, n, &s, SCAN_SKIP);
    if (status == CODA_OK) status = check_gate(&s, operand_type(g, n, SCAN_GATE));
    if (status == CODA_OK) status = need_range(n, "softplus", n->attr.scan.softplus, 0, 1);
    if (status != CODA_OK) return status;
    const struct type *state = operand_type(g, n, SCAN_STATE);
    n->type = !node_result(n) ? *s.x : state ? *state : state_type(&s, false);
    return CODA_OK;
}
