/* buffers.c -- which memory holds a value: an argument, scratch, or folded constants. */
#include "fuse.h"

#include <string.h>

static int add_buffer(struct grouper *gr, struct buffer b)
{
    b.first = b.last = -1;
    return plan_add_buffer(gr->plan, b);
}

static int64_t bytes_of(const struct type *t) { return dtype_bytes(t->dtype, type_elements(t)); }

static bool is_dense(const struct type *t, const int64_t *stride)
{
    int64_t dense[CODA_MAX_RANK];
    dense_strides(t, dense);
    return extents_all_equal(dense, stride, t->rank);
}

/* The first dense output that names the value is its storage; what it is added to holds something else. */
int own_output(const graph *g, int value)
{
    int o = g->node[value].output;
    while (o >= 0 && (g->output[o].add || !is_dense(&g->node[value].type, g->output[o].stride)))
        o = g->output[o].next;
    return o;
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
    return same && uses_count(&gr->uses, w) == 1 && leaf->output < 0 ? w : -1;
}

int64_t part_offset(const struct grouper *gr, int concat, int operand)
{
    const struct node *n = &gr->g->node[concat];
    int64_t stride[CODA_MAX_RANK];
    dense_strides(&n->type, stride);
    return gr->part[gr->site[concat].part + operand] * stride[n->attr.concat.axis];
}

int buffer_of(struct grouper *gr, int value)
{
    const graph *g = gr->g;
    struct site *s = &gr->site[value];
    if (s->buffer >= 0) return s->buffer;
    struct buffer b = {.space = SPACE_ARG, .bytes = bytes_of(&g->node[value].type), .value = value};
    if (g->node[value].op == OP_UNPACK)
        return s->buffer = buffer_of(gr, g->node[value].in[UNPACK_W]); /* its bytes */
    if (op_is_version(g->node[value].op)) return s->buffer = buffer_of(gr, state_leaf(g, value));
    int output = own_output(g, value), leaf = folded_in_place(gr, value);
    if (leaf >= 0) {
        s->buffer = buffer_of(gr, leaf);
        gr->plan->buffer[s->buffer].folded = value;
        return s->buffer;
    }
    if (s->role == ROLE_LEAF) b.arg = g->node[value].leaf;
    else if (output >= 0) b.arg = g->leaves + output;
    else b.space = s->is_const ? SPACE_PREPARED : SPACE_WORK;
    return s->buffer = add_buffer(gr, b);
}

bool base_is_steady(const struct grouper *gr, int base)
{
    const struct site *s = &gr->site[base];
    return s->is_const || (s->role == ROLE_LEAF && !node_is_written(&gr->g->node[base]));
}

int output_buffer(struct grouper *gr, int output)
{
    const graph *g = gr->g;
    int value = g->output[output].value;
    if (own_output(g, value) == output) return buffer_of(gr, value);
    struct buffer b = {.space = SPACE_ARG, .value = value, .arg = g->leaves + output};
    b.bytes = bytes_of(&g->node[value].type);
    return add_buffer(gr, b);
}

int accumulator_buffer(struct grouper *gr, int value)
{
    struct site *s = &gr->site[group_state(gr, value)];
    struct buffer b = {.space = s->is_const ? SPACE_PREPARED : SPACE_WORK, .value = value};
    if (s->accumulator_buffer < 0) s->accumulator_buffer = add_buffer(gr, b);
    return s->accumulator_buffer;
}
