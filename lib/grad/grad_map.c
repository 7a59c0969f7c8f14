/*
 * grad_map.c -- element by element: maps, by the facts that their files declare, and casts.
 *
 *     f linear in operand i            dx_i = f(.., dy, ..): dy in its place
 *     f linear in several together     dx_i = f(.., 0, dy, 0, ..)
 *     otherwise                        dx_i = dy f_i(..), f_i the map that is the partial derivative
 *
 * each summed over what was broadcast.
 */
#include "rules.h"

#include <string.h>

enum { PARTIAL_NONE = -1 };

/* f with dy in place of operand i, where it is linear in it; all operands that are linear together with it
 * are 0 then. A map of such operands alone is k_i x_i added up: k_i = f(0, .., 1, .. 0). */
static int put_in_place(struct grad *w, const struct node *n, int i, int dy)
{
    int in[PRIM_MAX_INPUTS];
    const struct prim *prim = n->prim;
    unsigned jointly = prim->facts.jointly, all = (1u << prim->inputs) - 1;
    if (jointly == all && prim->reference) {
        double unit[PRIM_MAX_INPUTS] = {0}, params[PRIM_MAX_PARAMS];
        for (int k = 0; k < prim->params; k++) params[k] = n->attr.map.param[k];
        unit[i] = 1;
        return make_scale(w, dy, prim->reference(unit, params));
    }
    for (int k = 0; k < n->nin; k++) in[k] = k == i ? dy : jointly >> k & 1 ? make_zero(w, dy) : n->in[k];
    return make_prim(w, prim, in, n->nin, n->attr.map.param);
}

/* dy times the partial derivative by operand i; PARTIAL_NONE if that is 0. */
static int partial(struct grad *w, int v, int i, int dy)
{
    const struct node *n = grad_node(w, v);
    const struct prim *by = n->prim->facts.grad[i];
    switch (prim_partial(n->prim, i)) {
    case PRIM_PARTIAL_ZERO: return PARTIAL_NONE;
    case PRIM_PARTIAL_ONE: return dy;
    case PRIM_PARTIAL_LINEAR: return put_in_place(w, n, i, dy);
    case PRIM_PARTIAL_MAP: return make_mul(w, dy, make_prim(w, by, n->in, by->inputs, n->attr.map.param));
    case PRIM_PARTIAL_NONE: break;
    }
    grad_refuse(w, v, i, "is a map without a derivative by operand %d", i);
    return PARTIAL_NONE;
}

/* An operand that was broadcast gets the sum of what each of its copies would; the cotangent that the sum is
 * of must have all of them. */
static void give_operand(struct grad *w, int v, int i, int value)
{
    int x = grad_node(w, v)->in[i];
    if (value < 0) return;
    struct type to = *grad_type(w, x), whole = *grad_type(w, v);
    if (!grad_same_dims(&to, &whole)) value = make_sum(w, make_wide(w, value, &whole), &to);
    grad_give(w, x, value);
}

void grad_map(struct grad *w, int v, int dy)
{
    const struct node *n = grad_node(w, v);
    for (int i = 0; i < n->nin; i++)
        if (grad_wants(w, n, i)) give_operand(w, v, i, partial(w, v, i, dy));
}

void grad_cast(struct grad *w, int v, int dy)
{
    int x = grad_node(w, v)->in[CAST_X];
    coda_dtype from = grad_type(w, x)->dtype, to = grad_type(w, v)->dtype;
    if (dtype_is_storage(to) && !dtype_is_storage(from))
        grad_refuse(w, v, CAST_X, "rounds to %s, by which it has no derivative", dtype_name(to));
    else if (!dtype_is_storage(from)) grad_give(w, x, dy);
    else grad_refuse(w, v, CAST_X, "reads %s, by which it has no derivative", dtype_name(from));
}
