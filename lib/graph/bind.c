/*
 * bind.c -- a graph with numbers in place of its symbols: the one that the same calls would have made with
 * them, so that all that comes after a graph knows numbers alone. And a copy of a graph, which is that graph
 * with each symbol in its own place.
 */
#include "graph.h"

#include <string.h>

struct binding {
    const graph *from;
    graph *to;
    const int64_t *values; /* NULL: symbols stay */
};

static int64_t bound(const struct binding *b, int64_t d)
{
    return b->values ? dims_value(b->from->dims, d, b->values) : d;
}

static struct type bound_type(const struct binding *b, const struct type *t)
{
    struct type r = *t;
    for (int i = 0; i < r.rank; i++) r.dim[i] = bound(b, t->dim[i]);
    r.dims = b->to->dims;
    return r;
}

/* Dense strides stay dense, also where an extent is 0. */
static void bind_strides(const struct binding *b, const struct type *t, const int64_t *from, int64_t *to)
{
    int64_t dense[CODA_MAX_RANK];
    struct type r = bound_type(b, t);
    dense_strides(t, dense);
    if (!memcmp(dense, from, sizeof *dense * (size_t)t->rank)) {
        dense_strides(&r, to);
        return;
    }
    for (int i = 0; i < t->rank; i++) to[i] = bound(b, from[i]);
}

/* Numbers that are equal by chance, or 1, do not tell which extents count rows. */
static unsigned symbols_of_rows(const struct binding *b, const struct type *t)
{
    unsigned rows = 0;
    for (int d = 0; d < MAX(t->rank - 1, MIN(t->rank, 1)); d++)
        rows |= dims_symbols(b->from->dims, t->dim[d]);
    return rows;
}

static bool bind_node(const struct binding *b, int value, int *map)
{
    const struct node *n = &b->from->node[value];
    struct node copy = *n;
    copy.in = graph_map_operands(b->to, n, map);
    if (!copy.in) return false;
    for (int k = 0; k < attr_count(n); k++)
        if (attr_kind(n, k) == ATTR_EXTENT) attr_set_integer(&copy, k, bound(b, attr_integer(n, k)));
    if (op_is_leaf(n->op)) {
        copy.type = bound_type(b, &n->type);
        bind_strides(b, &n->type, n->stride, copy.stride);
    }
    if (b->values) copy.rows = symbols_of_rows(b, &n->type);
    map[value] = graph_append(b->to, &copy);
    return map[value] >= 0;
}

static bool bind_output(const struct binding *b, const struct output *o, const int *map)
{
    int64_t stride[CODA_MAX_RANK];
    bind_strides(b, &b->from->node[o->value].type, o->stride, stride);
    return (o->add ? graph_append_sum : graph_append_output)(b->to, o->name, map[o->value], stride) >= 0;
}

static bool bind_all(const struct binding *b, int *map)
{
    bool good = true;
    for (int i = 0; good && i < b->from->nodes; i++) good = bind_node(b, i, map);
    for (int i = 0; good && i < b->from->outputs; i++) good = bind_output(b, &b->from->output[i], map);
    return good;
}

static graph *bind_graph(const graph *g, const char *call, const int64_t *values)
{
    graph *to = graph_like(g);
    if (!to) return NULL;
    to->rewritten = g->rewritten;
    to->origins = 0;
    struct binding b = {g, to, values};
    int *map = ARENA_NEW(&to->arena, int, g->nodes + 1);
    bool good = map && (values || dims_copy(to->dims, g->dims));
    if (good && bind_all(&b, map)) return to;
    if (!good) fail(CODA_E_MEMORY, "%s: out of memory for %d nodes", call, g->nodes);
    else fail(to->status, "%s: %s", call, to->error);
    graph_free(to);
    return NULL;
}

graph *graph_bind(const graph *g, const char *call, const int64_t *values)
{
    return dims_check(g->dims, call, values) == CODA_OK ? bind_graph(g, call, values) : NULL;
}

static bool has_number(const graph *g, int64_t number)
{
    for (int i = 0; i < g->nodes; i++)
        for (int d = 0; d < g->node[i].type.rank; d++)
            if (g->node[i].type.dim[d] == number) return true;
    return false;
}

bool graph_binds_apart(const graph *g, const int64_t *values)
{
    const struct dims *t = g->dims;
    for (int64_t d = DIM_FIRST; d > DIM_FIRST - t->expressions; d--) {
        int64_t value = dims_value(t, d, values);
        if (value < 2 || has_number(g, value)) return false;
        for (int64_t other = DIM_FIRST; other > d; other--)
            if (dims_value(t, other, values) == value) return false;
    }
    return true;
}

graph *graph_copy(const graph *g, const char *call) { return bind_graph(g, call, NULL); }
