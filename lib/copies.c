/*
 * copies.c -- make a copy wherever strides cannot say what an operation needs. Exact.
 *
 *     f(x)  ==>  f(cast(x to its own dtype))
 *
 * In: a rewritten graph. Out: every reshape is a view; operands of matmul and attention are matrices by
 * strides; every output and every part of a concat is a value that some kernel stores there.
 */
#include "view.h"

#include <stdlib.h>
#include <string.h>

int64_t concat_start(const graph *g, const struct node *concat, int i)
{
    int64_t start = 0;
    for (int j = 0; j < i; j++) start += g->node[concat->in[j]].type.dim[concat->attr.i[0]];
    return start;
}

static int copy(graph *g, int value)
{
    struct node n = {.op = OP_CAST, .nin = 1, .in = &value, .origin = -1};
    n.attr.i[0] = g->node[value].type.dtype;
    return graph_append(g, &n);
}

/* Can a GEMM store a value of type t by these strides? */
static bool is_matrix(const struct type *t, const int64_t *stride)
{
    int64_t s;
    return t->rank < 2 || view_collapse(t, stride, 0, t->rank - 1, &s);
}

/* One dense buffer holds the result, and only that. */
static bool is_whole(enum op op) { return op == OP_CONCAT || op == OP_ATTENTION; }

/* A kernel computes the value, and can store it anywhere. */
static bool is_stored(const graph *g, int value)
{
    enum op op = g->node[value].op;
    return !op_is_leaf(op) && !op_is_view(op) && !is_whole(op);
}

static int part_of_concat(graph *g, const struct type *whole, int axis, int value)
{
    int64_t stride[CODA_MAX_RANK];
    dense_strides(whole, stride);
    const struct type *t = &g->node[value].type;
    return is_stored(g, value) && is_matrix(t, stride) && axis >= 0 ? value : copy(g, value);
}

static bool columns_adjacent(const graph *g, int value)
{
    struct view v;
    int last = g->node[value].type.rank - 1;
    return view_of(g, value, &v) && (g->node[value].type.dim[last] <= 1 || v.stride[last] == 1);
}

/* Appends n (operands already renamed) with copies of the operands that need one. */
static int append(graph *g, struct node *n)
{
    struct matmul_view mv;
    struct view v;
    if (n->op == OP_MATMUL && !view_matmul(g, n, &mv)) {
        n->in[0] = copy(g, n->in[0]);
        if (n->in[0] >= 0 && !view_matmul(g, n, &mv)) n->in[1] = copy(g, n->in[1]);
    } else if (n->op == OP_ATTENTION) {
        for (int i = 0; i < 3; i++)
            if (!columns_adjacent(g, n->in[i])) n->in[i] = copy(g, n->in[i]);
    } else if (n->op == OP_CONCAT) {
        for (int i = 0; i < n->nin; i++)
            n->in[i] = part_of_concat(g, &n->type, (int)n->attr.i[0], n->in[i]);
    }
    int value = graph_append(g, n);
    if (value >= 0 && n->op == OP_RESHAPE && !view_of(g, value, &v)) {
        n->in[0] = copy(g, n->in[0]);
        value = n->in[0] < 0 ? -1 : graph_append(g, n);
    }
    return value;
}

static bool copy_nodes(graph *out, const graph *in, int *map)
{
    for (int i = 0; i < in->nodes; i++) {
        struct node n = in->node[i];
        int operand[64];
        if (n.nin > ARRAY_SIZE(operand)) {
            fail(CODA_E_UNSUPPORTED, "%s with %d operands; at most 64", op_info[n.op].text, n.nin);
            return false;
        }
        for (int j = 0; j < n.nin; j++) operand[j] = n.in[j] < 0 ? -1 : map[n.in[j]];
        n.in = operand;
        map[i] = append(out, &n);
        if (map[i] < 0) return false;
    }
    return true;
}

/* A dense output of a reshape is the dense output of what was reshaped. */
static int unshaped(const graph *g, int value, int64_t *stride)
{
    int64_t dense[CODA_MAX_RANK];
    dense_strides(&g->node[value].type, dense);
    if (memcmp(dense, stride, sizeof *dense * (size_t)g->node[value].type.rank)) return value;
    while (g->node[value].op == OP_RESHAPE) value = g->node[value].in[0];
    dense_strides(&g->node[value].type, stride);
    return value;
}

/* An output is written by the kernel that computes it: by a copy if there is none, or if it is not a
 * matrix in memory, or if it is not the one dense buffer of a concat or of attention. */
static bool copy_outputs(graph *out, const graph *in, const int *map)
{
    for (int i = 0; i < in->outputs; i++) {
        const struct output *o = &in->output[i];
        int64_t dense[CODA_MAX_RANK], stride[CODA_MAX_RANK];
        memcpy(stride, o->stride, sizeof stride);
        int value = unshaped(out, map[o->value], stride);
        const struct type *t = &out->node[value].type;
        dense_strides(t, dense);
        bool whole = is_whole(out->node[value].op) && !memcmp(dense, stride, sizeof *dense * (size_t)t->rank);
        for (int j = 0; j < i; j++) whole = whole && out->output[j].value != value;
        if (!whole && !(is_stored(out, value) && is_matrix(t, stride))) value = copy(out, value);
        if (value < 0 || graph_append_output(out, o->name, value, stride) < 0) return false;
    }
    return true;
}

graph *insert_copies(const graph *in)
{
    graph *out = graph_like(in);
    int *map = calloc((size_t)in->nodes + 1, sizeof *map);
    bool ok = out && map && copy_nodes(out, in, map) && copy_outputs(out, in, map);
    free(map);
    if (ok) return out;
    if (!out || !map) fail(CODA_E_MEMORY, "out of memory for %d nodes", in->nodes);
    else if (out->status) fail(out->status, "%s", out->error);
    graph_free(out);
    return NULL;
}
