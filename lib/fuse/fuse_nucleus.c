/* fuse_nucleus.c -- a nucleus program from its node: rows that lie by one stride. */
#include "fuse_own.h"

#include <string.h>

/* insert_copies.c has seen to it that rows have one stride. */
static void of_rows(struct writer *w, struct tensor_use *u)
{
    if (u->buffer < 0) return;
    const struct type *t = &w->gr->g->node[u->value].type;
    const struct tensor_use from = *u;
    memset(u->stride, 0, sizeof u->stride);
    if (!extent_is_one(type_elements(t))) view_collapse(t, from.stride, 0, t->rank, &u->stride[0]);
}

static void read_node(struct writer *w)
{
    const struct node *n = &w->gr->g->node[w->p->root];
    const struct type *t = &w->gr->g->node[n->in[NUCLEUS_X]].type;
    struct nucleus_spec *s = w->p->spec;
    struct tensor_use *x = &s->use[NUCLEUS_X], from = *x;
    w->p->rank = 2;
    w->p->dim[0] = s->rows = type_rows(t);
    w->p->dim[1] = s->columns = type_columns(t);
    memset(x->stride, 0, sizeof x->stride);
    x->role = USE_LOAD;
    x->stride[1] = from.stride[t->rank - 1];
    view_collapse(t, from.stride, 0, t->rank - 1, &x->stride[0]);
    for (int i = NUCLEUS_X + 1; i < NUCLEUS_OPERANDS; i++) of_rows(w, &s->use[i]);
}

static void place(const void *spec, const struct type *t, int result, struct tensor_use *to)
{
    (void)spec, (void)t, (void)result;
    to->stride[0] = 1;
}

const struct own_fusion fuse_nucleus = {.kind = &own_nucleus, .read = read_node, .place = place};
