/*
 * parts.c -- concats that need no memory: matrices of weights, one behind the other, for products alone.
 *
 *     matmul(x, concat(a, b, ...))      a, b, ...: dense leaves [N, K] of one type, along N
 *
 * The main loop of such a product reads each of its columns' weights where they lie.
 */
#include "graph.h"
#include "guards.h"

static bool is_part(const struct node *leaf, const struct node *first)
{
    const struct type *t = &leaf->type;
    return leaf->op == OP_WEIGHT && t->rank == 2 && t->dtype == first->type.dtype &&
           !dtype_is_storage(t->dtype) && !dtype_is_index(t->dtype) && extent_reaches(t->dim[0], 1) &&
           extents_equal(leaf->stride[0], t->dim[1]) && extent_is_one(leaf->stride[1]);
}

static bool is_candidate(const graph *g, const struct node *n)
{
    bool good = n->op == OP_CONCAT && n->attr.concat.axis == 0 && !n->attr.concat.interleave && n->nin > 1 &&
                n->nin <= MOST_WEIGHT_PARTS && n->output < 0;
    for (int i = 0; good && i < n->nin; i++) good = is_part(&g->node[n->in[i]], &g->node[n->in[0]]);
    return good;
}

void graph_find_parts(const graph *g, bool *parts)
{
    for (int i = 0; i < g->nodes; i++) {
        const struct node *n = &g->node[i];
        parts[i] = is_candidate(g, n);
        for (int j = 0; j < n->nin; j++)
            if (n->in[j] >= 0 && !(n->op == OP_MATMUL && j == MATMUL_W && !n->attr.matmul.kn))
                parts[n->in[j]] = false;
    }
}
