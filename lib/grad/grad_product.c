/*
 * grad_product.c -- products and what they read.
 *
 *     z = x w^T    dx = dz w      dw = dz^T x
 *     z = x w      dx = dz w^T    dw = x^T dz        over all rows, leading dimensions joined
 *
 * A weight's gradient is a product in fp32 where it is to be kept in fp32: nothing rounds it on the way. A
 * turn's transpose is the turn by the opposite angle, with the same scale.
 */
#include "rules.h"

static int product(struct grad *w, int x, int by, bool kn, coda_dtype dtype)
{
    struct node n = {.op = OP_MATMUL, .attr.matmul.kn = kn};
    if (x < 0 || by < 0) return -1;
    n.attr.matmul.f32 = dtype == CODA_F32 && grad_type(w, x)->dtype != CODA_F32;
    return make_append(w, n, VALUES(x, by));
}

static int by_weight(struct grad *w, int v, int dz)
{
    const struct node *n = grad_node(w, v);
    int x = n->in[MATMUL_X], of = n->in[MATMUL_W];
    if (grad_type(w, of)->rank == 2) x = make_matrix(w, x), dz = make_matrix(w, dz);
    if (n->attr.matmul.kn) return product(w, make_turned(w, x), dz, true, w->dtype[of]);
    return product(w, make_turned(w, dz), x, true, w->dtype[of]);
}

void grad_matmul(struct grad *w, int v, int dy)
{
    const struct node *n = grad_node(w, v);
    int x = n->in[MATMUL_X], of = n->in[MATMUL_W];
    if (dtype_is_storage(grad_type(w, x)->dtype)) {
        int by = grad_wants(w, n, MATMUL_X) ? MATMUL_X : MATMUL_W;
        grad_refuse(w, v, by, "multiplies %s by %s, by which it has no derivative",
                    dtype_name(grad_type(w, x)->dtype), dtype_name(grad_type(w, of)->dtype));
        return;
    }
    int dz = make_cast(w, make_wide(w, dy, &n->type), grad_type(w, x)->dtype);
    if (grad_wants(w, n, MATMUL_X)) grad_give(w, x, product(w, dz, of, !n->attr.matmul.kn, w->dtype[x]));
    if (!grad_wants(w, n, MATMUL_W)) return;
    bool packed = graph_packed(w->g, of) >= 0, small = dtype_is_storage(grad_type(w, of)->dtype);
    if (packed) grad_refuse(w, v, MATMUL_W, "reads a packed w, by which it has no derivative");
    else if (!small) grad_give(w, of, by_weight(w, v, dz));
    else
        grad_refuse(w, v, MATMUL_W, "reads a w of %s, by which it has no derivative",
                    dtype_name(grad_type(w, of)->dtype));
}

void grad_rope(struct grad *w, int v, int dy)
{
    const struct node *n = grad_node(w, v);
    if (grad_wants(w, n, ROPE_FREQUENCIES)) {
        grad_refuse(w, v, ROPE_FREQUENCIES, "has no derivative by its frequencies");
        return;
    }
    struct node turn = {.op = OP_ROPE, .attr = n->attr};
    turn.attr.rope.inverse = !n->attr.rope.inverse;
    dy = make_wide(w, dy, &n->type);
    grad_give(w, n->in[ROPE_X],
              make_append(w, turn, VALUES(dy, n->in[ROPE_POSITIONS], n->in[ROPE_FREQUENCIES])));
}
