/* infer_exchange.c -- the types of groups of ranks, and of what these exchange. */
#include "infer.h"
#include "ranks.h"

#include <inttypes.h>

/* A byte of no dimensions, so that a place among the arguments is its own. */
coda_status infer_group(const graph *g, struct node *n)
{
    int64_t ranks = n->attr.group.ranks;
    (void)g;
    n->type = (struct type){.dtype = CODA_U8, .dims = g->dims};
    if (ranks >= 1 && ranks <= RANKS_MOST) return CODA_OK;
    return fail(CODA_E_INVALID, "group %.40s: ranks is %" PRId64 "; must be 1..%d",
                n->name ? n->name : "(NULL)", ranks, RANKS_MOST);
}

coda_status check_groups(const graph *g, const struct node *n)
{
    for (int i = 0; i < n->nin; i++) {
        bool takes = op_is_exchange(n->op) && i == EXCHANGE_GROUP;
        if (takes || n->in[i] < 0 || g->node[n->in[i]].op != OP_GROUP) continue;
        return fail(CODA_E_INVALID, "%s: operand %d is a group, no tensor", node_word(n), i);
    }
    return CODA_OK;
}

/* What all exchanges ask of their operands; the ranks of the group, or 0, where they fail. */
static int64_t find_ranks(const graph *g, const struct node *n)
{
    const struct node *group = &g->node[n->in[EXCHANGE_GROUP]];
    int before = n->nin > EXCHANGE_BEFORE ? n->in[EXCHANGE_BEFORE] : -1;
    if (group->op != OP_GROUP) {
        fail(CODA_E_INVALID, "%s: group is %s, a tensor; must be of coda_group_input", node_word(n),
             type_text(&group->type).s);
        return 0;
    }
    if (before >= 0 && !op_is_exchange(g->node[before].op)) {
        fail(CODA_E_INVALID, "%s: before is %s, the result of %s; must be an exchange's", node_word(n),
             type_text(&g->node[before].type).s, node_word(&g->node[before]));
        return 0;
    }
    return group->attr.group.ranks;
}

coda_status infer_all_reduce(const graph *g, struct node *n)
{
    const struct type *x = operand_type(g, n, EXCHANGE_X);
    coda_status s = need_float(n, EXCHANGE_X, x, 0);
    if (s == CODA_OK && !find_ranks(g, n)) s = fail_status();
    n->type = *x;
    return s;
}

coda_status infer_reduce_scatter(const graph *g, struct node *n)
{
    const struct type *x = operand_type(g, n, EXCHANGE_X);
    int64_t *axis = &n->attr.reduce_scatter.axis, ranks = 0;
    coda_status s = need_float(n, EXCHANGE_X, x, 1);
    if (s == CODA_OK && !(ranks = find_ranks(g, n))) s = fail_status();
    if (s == CODA_OK) s = find_axis(n, "x", x, axis);
    if (s != CODA_OK) return s;
    if (!dims_divides(g->dims, ranks, x->dim[*axis]))
        return fail(CODA_E_INVALID,
                    "reduce_scatter: x is %s; %" PRId64 " ranks do not divide its %s along "
                    "axis %" PRId64,
                    dims_text(x).s, ranks, dim_text(g->dims, x->dim[*axis]).s, *axis);
    n->type = *x;
    n->type.dim[*axis] = dims_divide(g->dims, x->dim[*axis], ranks);
    return n->type.dim[*axis] == DIM_NONE ? fail_status() : CODA_OK;
}

coda_status infer_all_gather(const graph *g, struct node *n)
{
    const struct type *x = operand_type(g, n, EXCHANGE_X);
    int64_t *axis = &n->attr.all_gather.axis, ranks = find_ranks(g, n);
    if (!ranks) return fail_status();
    coda_status s = find_axis(n, "x", x, axis);
    if (s != CODA_OK) return s;
    n->type = *x;
    n->type.dim[*axis] = dims_multiply(g->dims, x->dim[*axis], ranks);
    return n->type.dim[*axis] == DIM_NONE ? fail_status() : CODA_OK;
}
