/* fuse_exchange.c -- what ranks add up or put together as a program, from its node. */
#include "fuse_own.h"

/* x as `outer` times `extent` times `inner` elements, of which the middle ones lie along the axis. */
static void split(struct exchange_spec *s, const struct type *x, int axis)
{
    s->outer = s->extent = s->inner = 1;
    for (int d = 0; d < x->rank; d++) {
        int64_t *part = d < axis ? &s->outer : d == axis ? &s->extent : &s->inner;
        *part = mul_counts(*part, x->dim[d]);
    }
}

/* The axis; all of x is one run of elements, where all of it is added. */
static int axis_of(const struct node *n)
{
    return n->op == OP_ALL_REDUCE       ? -1
           : n->op == OP_REDUCE_SCATTER ? (int)n->attr.reduce_scatter.axis
                                        : (int)n->attr.all_gather.axis;
}

static void read_node(struct writer *w)
{
    const graph *g = w->gr->g;
    const struct node *n = &g->node[w->p->root];
    const struct type *x = &g->node[n->in[EXCHANGE_X]].type;
    struct exchange_spec *s = w->p->spec;
    s->op = n->op;
    s->ranks = g->node[n->in[EXCHANGE_GROUP]].attr.group.ranks;
    split(s, x, axis_of(n));
    if (axis_of(n) < 0) s->extent = s->inner, s->inner = 1;
    w->p->rank = 3;
    w->p->dim[0] = s->outer, w->p->dim[1] = s->extent, w->p->dim[2] = s->inner;
    dense_strides(x, s->use[ALL_REDUCE_X].stride);
}

static void place(const void *spec, const struct type *t, int result, struct tensor_use *to)
{
    (void)spec, (void)result;
    dense_strides(t, to->stride);
}

const struct own_fusion fuse_exchange = {.kind = &own_exchange, .read = read_node, .place = place};
