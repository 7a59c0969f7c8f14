/* buffers.c -- which memory holds a value: an argument, scratch, or folded constants. */
#include "group.h"

#include <string.h>

static int add_buffer(struct grouper *gr, struct buffer b)
{
    b.first = b.last = -1;
    gr->plan->buffer[gr->plan->buffers] = b;
    return gr->plan->buffers++;
}

static int leaf_index(const graph *g, int value)
{
    int index = 0;
    for (int i = 0; i < value; i++) index += op_is_leaf(g->node[i].op);
    return index;
}

static int64_t bytes_of(const struct type *t) { return type_elements(t) * dtype_size(t->dtype); }

static bool is_dense(const struct type *t, const int64_t *stride)
{
    int64_t dense[CODA_MAX_RANK];
    dense_strides(t, dense);
    return !memcmp(dense, stride, sizeof *dense * (size_t)t->rank);
}

/* The first dense output that names the value is its storage. */
int own_output(const graph *g, int value)
{
    for (int i = 0; i < g->outputs; i++)
        if (g->output[i].value == value && is_dense(&g->node[value].type, g->output[i].stride)) return i;
    return -1;
}

/* With CODA_FOLD_IN_PLACE a folded weight overwrites the weight, if nothing else reads that. */
static int folded_in_place(const struct grouper *gr, int value)
{
    const graph *g = gr->g;
    const struct node *n = &g->node[value];
    if (gr->opt->fold != CODA_FOLD_IN_PLACE || !gr->site[value].is_const || n->op != OP_MAP) return -1;
    int w = n->in[0];
    const struct node *leaf = &g->node[w];
    bool same =
        leaf->op == OP_WEIGHT && type_equal(&leaf->type, &n->type) && is_dense(&leaf->type, leaf->stride);
    return same && graph_uses(g, w) == 1 ? w : -1;
}

int buffer_of(struct grouper *gr, int value)
{
    const graph *g = gr->g;
    struct site *s = &gr->site[value];
    if (s->buffer >= 0) return s->buffer;
    struct buffer b = {.space = SPACE_ARG, .bytes = bytes_of(&g->node[value].type), .value = value};
    int output = own_output(g, value), leaf = folded_in_place(gr, value), leaves = leaf_index(g, g->nodes);
    if (leaf >= 0) return s->buffer = buffer_of(gr, leaf);
    if (s->role == ROLE_LEAF) b.arg = leaf_index(g, value);
    else if (output >= 0) b.arg = leaves + output;
    else b.space = s->is_const ? SPACE_PREPARED : SPACE_WORK;
    return s->buffer = add_buffer(gr, b);
}

int output_buffer(struct grouper *gr, int output)
{
    const graph *g = gr->g;
    int value = g->output[output].value;
    if (own_output(g, value) == output) return buffer_of(gr, value);
    struct buffer b = {.space = SPACE_ARG, .value = value, .arg = leaf_index(g, g->nodes) + output};
    b.bytes = bytes_of(&g->node[value].type);
    return add_buffer(gr, b);
}

int state_buffer(struct grouper *gr, int value)
{
    struct site *s = &gr->site[value];
    struct buffer b = {.space = s->is_const ? SPACE_PREPARED : SPACE_WORK, .value = value};
    if (s->state_buffer < 0) s->state_buffer = add_buffer(gr, b);
    return s->state_buffer;
}
