/* fuse_conv1d.c -- a causal convolution as a program, from its node. */
#include "fuse_own.h"

#include <string.h>

/* A tensor [.., rows, columns] by three strides; one of one sequence by two. */
static void by_rows(struct tensor_use *u, const struct type *t)
{
    if (u->buffer < 0 || t->rank == 3) return;
    u->stride[2] = u->stride[1];
    u->stride[1] = u->stride[0];
    u->stride[0] = 0;
}

static void read_map(struct writer *w, struct conv1d_spec *s)
{
    for (int m = w->q->first; m >= 0; m = w->gr->site[m].next) {
        const struct node *n = &w->gr->g->node[m];
        if (n->op != OP_MAP) continue;
        s->map = n->prim;
        memcpy(s->param, n->attr.map.param, sizeof s->param);
    }
}

static void read_node(struct writer *w)
{
    const graph *g = w->gr->g;
    const struct node *n = &g->node[w->p->root];
    const struct type *x = &g->node[n->in[CONV1D_X]].type, *taps = &g->node[n->in[CONV1D_W]].type;
    struct conv1d_spec *s = w->p->spec;
    bool packed = s->use[CONV1D_STARTS].value >= 0;
    s->time = x->dim[x->rank - 2];
    s->columns = type_columns(x);
    s->taps = type_columns(taps);
    s->sequences = packed ? g->node[n->in[CONV1D_STARTS]].type.dim[0] - 1 : x->rank == 3 ? x->dim[0] : 1;
    w->p->rank = 3;
    w->p->dim[0] = packed ? 1 : s->sequences, w->p->dim[1] = s->time, w->p->dim[2] = s->columns;
    read_map(w, s);
    if ((s->edges = w->q->conv1d_rows)) s->use[CONV1D_X] = conv1d_edges(w, USE_OPERAND);
    else by_rows(&s->use[CONV1D_X], x);
    if (s->use[CONV1D_BEFORE].buffer >= 0)
        by_rows(&s->use[CONV1D_BEFORE], &g->node[n->in[CONV1D_BEFORE]].type);
}

static void place(const void *spec, const struct type *t, int result, struct tensor_use *to)
{
    (void)spec, (void)result;
    dense_strides(t, to->stride);
    by_rows(to, t);
}

const struct own_fusion fuse_conv1d = {.kind = &own_conv1d,
                                       .read = read_node,
                                       .place = place,
                                       .states = 1u << (CONV1D_AFTER - CONV1D_OPERANDS),
                                       .state = CONV1D_BEFORE,
                                       .maps = true};
