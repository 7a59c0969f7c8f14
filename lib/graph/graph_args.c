/* graph_args.c -- what coda_run wants of a graph: leaves in order of creation, then outputs. */
#include "graph.h"

int graph_args(const graph *g) { return g->leaves + g->outputs; }

static void describe(coda_arg_info *out, const char *name, coda_arg_kind kind, const struct type *t,
                     const int64_t *stride)
{
    int64_t last = 0; /* offset of the last element, where symbols are largest */
    bool empty = false;
    *out =
        (coda_arg_info){.size = sizeof *out, .name = name, .kind = kind, .dtype = t->dtype, .rank = t->rank};
    for (int i = 0; i < t->rank; i++) {
        out->dims[i] = t->dim[i];
        out->strides[i] = stride[i];
        int64_t most = dims_most(t->dims, t->dim[i]);
        if (most > 1) last += (most - 1) * dims_most(t->dims, stride[i]);
        empty = empty || !most;
    }
    if (!empty) out->bytes = (size_t)dtype_bytes(t->dtype, last + 1);
}

coda_arg_kind leaf_kind(const struct node *n)
{
    switch (n->op) {
    case OP_INPUT: return n->attr.input.consumed ? CODA_ARG_CONSUMED : CODA_ARG_INPUT;
    case OP_WEIGHT: return CODA_ARG_WEIGHT;
    case OP_STATE: return CODA_ARG_STATE;
    case OP_GROUP: return CODA_ARG_GROUP;
    default: return CODA_ARG_SCALAR;
    }
}

static void describe_leaf(coda_arg_info *out, const struct node *n)
{
    describe(out, n->name, leaf_kind(n), &n->type, n->stride);
    if (n->op != OP_GROUP) return;
    out->rank = 1, out->dims[0] = n->attr.group.ranks;
    out->bytes = 0; /* the argument is a handle, no memory */
}

static void describe_output(coda_arg_info *out, const graph *g, const struct output *o)
{
    describe(out, o->name, o->add ? CODA_ARG_SUM : CODA_ARG_OUTPUT, &g->node[o->value].type, o->stride);
}

void graph_arg(const graph *g, int index, coda_arg_info *out)
{
    if (index < g->leaves) describe_leaf(out, &g->node[g->leaf[index]]);
    else describe_output(out, g, &g->output[index - g->leaves]);
}
