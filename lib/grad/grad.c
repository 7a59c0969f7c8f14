/*
 * grad.c -- reverse mode on a graph: from its last node to its first, each rule turns the cotangent of a
 * node's result into those of its operands (Griewank & Walther, Evaluating Derivatives, 2008, chapter 3).
 *
 * Everything that it appends is an ordinary node, of the operations that a caller has, so that gradients are
 * printed, evaluated, rewritten and planned as the formula itself is. Each rule is the textbook's; what makes
 * a backward pass cheap is up to the rewrites.
 *
 * In: a graph as it was built, with norms and losses whole. Cotangents of integers do not exist: a path ends
 * there. A weight's gradient follows the data gradient of the same product at once, so that a cotangent is
 * dead when both have read it.
 */
#include "rules.h"

static grad_rule *const rule[OP_COUNT] = {
#define OP(NAME, name, ...) grad_##name,
#include "ops.def"
};

/* ---- The walk ---- */

/* Is it a weight, or a view or cast of one? Its gradient is kept in the dtype that was asked for. */
static bool is_of_weight(const struct grad *w, int v)
{
    const struct node *n = grad_node(w, v);
    while (op_is_view(n->op) || n->op == OP_CAST) n = grad_node(w, n->in[0]);
    return n->op == OP_WEIGHT || n->op == OP_STATE;
}

/* What an exchange comes behind is no operand of its sum. */
static bool depends(const struct grad *w, int v)
{
    const struct node *n = grad_node(w, v);
    int count = op_is_exchange(n->op) ? EXCHANGE_BEFORE : n->nin;
    for (int i = 0; i < count; i++)
        if (grad_wants(w, n, i)) return true;
    return false;
}

/* Results of one call of attention find each other. */
static bool find_siblings(struct grad *w)
{
    int *first = ARENA_NEW(&w->arena, int, w->g->origins + 1); /* of an origin: the node's index + 1 */
    if (!first) return grad_no_memory(w), false;
    for (int v = 0; v < w->nodes; v++) {
        const struct node *n = grad_node(w, v);
        w->sibling[v] = w->late[v] = -1;
        if (n->op != OP_ATTENTION) continue;
        int other = first[n->origin] - 1;
        if (other < 0) first[n->origin] = v + 1;
        if (other < 0 || !node_same_call(n, grad_node(w, other)) ||
            node_result(n) == node_result(grad_node(w, other)))
            continue;
        w->sibling[v] = other;
        w->sibling[other] = v;
    }
    return true;
}

static bool prepare(struct grad *w, const int *x, int nx, coda_dtype weights)
{
    w->depends = ARENA_NEW(&w->arena, bool, w->nodes + 1);
    w->dtype = ARENA_NEW(&w->arena, coda_dtype, w->nodes + 1);
    w->addends = ARENA_NEW(&w->arena, struct addends, w->nodes + 1);
    w->cuts = ARENA_NEW(&w->arena, struct cut *, w->nodes + 1);
    w->sibling = ARENA_NEW(&w->arena, int, w->nodes + 1);
    w->late = ARENA_NEW(&w->arena, int, w->nodes + 1);
    if (w->arena.failed) return grad_no_memory(w), false;
    for (int i = 0; i < nx; i++) w->depends[x[i]] = !dtype_is_index(grad_type(w, x[i])->dtype);
    for (int v = 0; v < w->nodes; v++) {
        const struct type *t = grad_type(w, v);
        w->depends[v] = w->depends[v] || (!dtype_is_index(t->dtype) && depends(w, v));
        w->dtype[v] = w->depends[v] && is_of_weight(w, v) ? weights : t->dtype;
    }
    return find_siblings(w);
}

/* The gradients of the y's: what the caller gave, or the number 1. */
static void begin(struct grad *w, const int *y, const int *dy, int ny)
{
    for (int i = 0; i < ny; i++) {
        if (!w->depends[y[i]]) continue;
        grad_give(w, y[i], dy[i] >= 0 ? dy[i] : graph_constant(w->g, grad_type(w, y[i])->dtype, 1));
    }
}

static void walk(struct grad *w, int *cotangent)
{
    for (int v = w->nodes - 1; v >= 0 && w->g->status == CODA_OK; v--) {
        if (!w->depends[v]) continue;
        w->scope = grad_node(w, v)->scope;
        if (w->cuts[v]) grad_join_slices(w, v);
        int dy = cotangent[v] = grad_take(w, v);
        if ((dy >= 0 || w->late[v] >= 0) && depends(w, v)) rule[grad_node(w, v)->op](w, v, dy);
    }
}

bool graph_grad(graph *g, const int *y, const int *dy, int ny, const int *x, int nx, int *dx,
                coda_dtype weights)
{
    struct grad w = {.g = g, .nodes = g->nodes};
    int *cotangent = ARENA_NEW(&w.arena, int, w.nodes + 1);
    if (!cotangent) grad_no_memory(&w);
    else if (prepare(&w, x, nx, weights)) {
        for (int v = 0; v < w.nodes; v++) cotangent[v] = -1;
        begin(&w, y, dy, ny);
        walk(&w, cotangent);
    }
    for (int i = 0; i < nx && g->status == CODA_OK; i++) {
        w.scope = grad_node(&w, x[i])->scope;
        dx[i] = cotangent[x[i]] = make_wide(&w, cotangent[x[i]], grad_type(&w, x[i]));
    }
    arena_free(&w.arena);
    return g->status == CODA_OK;
}
