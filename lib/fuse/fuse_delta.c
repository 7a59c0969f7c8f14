/* fuse_delta.c -- the gated delta rule as a program, from its node. */
#include "fuse_own.h"

/* Where a sequence has no dimension of its own, its stride is 0: of a tensor [.., rows, columns], or of a
 * state. */
static void lead(struct tensor_use *u, int missing)
{
    if (u->buffer < 0 || !missing) return;
    for (int d = CODA_MAX_RANK - 1; d > 0; d--) u->stride[d] = u->stride[d - 1];
    u->stride[0] = 0;
}

static void read_node(struct writer *w)
{
    const graph *g = w->gr->g;
    const struct node *n = &g->node[w->p->root];
    const struct type *q = &g->node[n->in[DELTA_Q]].type, *v = &g->node[n->in[DELTA_V]].type;
    const struct attr_delta *a = &n->attr.delta;
    struct delta_spec *s = w->p->spec;
    bool packed = s->use[DELTA_STARTS].value >= 0;
    s->time = q->dim[q->rank - 2];
    s->sequences = packed ? g->node[n->in[DELTA_STARTS]].type.dim[0] - 1 : q->rank == 3 ? q->dim[0] : 1;
    s->heads = a->heads, s->key_heads = a->key_heads;
    s->keys = type_columns(q) / a->key_heads, s->values = type_columns(v) / a->heads;
    s->by_row = !extents_equal(type_columns(&g->node[n->in[DELTA_DECAY]].type), a->heads);
    s->norm = a->norm, s->eps = a->eps, s->scale = a->scale;
    w->p->rank = 4;
    w->p->dim[0] = packed ? 1 : s->sequences, w->p->dim[1] = s->time;
    w->p->dim[2] = s->heads, w->p->dim[3] = s->values;
    for (int i = DELTA_Q; i <= DELTA_BETA; i++) lead(&s->use[i], 3 - q->rank);
    if (s->use[DELTA_BEFORE].buffer >= 0)
        lead(&s->use[DELTA_BEFORE], 4 - g->node[n->in[DELTA_BEFORE]].type.rank);
}

static void place(const void *spec, const struct type *t, int result, struct tensor_use *to)
{
    (void)spec;
    dense_strides(t, to->stride);
    lead(to, (result == DELTA_AFTER ? 4 : 3) - t->rank);
}

const struct own_fusion fuse_delta = {.kind = &own_delta,
                                      .read = read_node,
                                      .place = place,
                                      .states = 1u << (DELTA_AFTER - DELTA_OPERANDS),
                                      .state = DELTA_BEFORE};
