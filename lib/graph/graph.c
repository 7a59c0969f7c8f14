/*
 * graph.c -- a graph grows at its end and nowhere else: nodes are appended in topological order and
 * never change, so every rewrite is a function from one graph to another.
 *
 * The first mistake poisons a graph. All memory comes from its arena; an array that grows leaves its
 * old copy there, so that a pointer to a node outlives later appends.
 */
#include "graph.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { MAX_NODES = 1 << 24 };

graph *graph_new(void)
{
    graph *g = calloc(1, sizeof *g);
    struct dims *dims = g ? ARENA_NEW(&g->arena, struct dims, 1) : NULL;
    if (!dims) {
        fail(CODA_E_MEMORY, "graph: out of memory");
        free(g);
        return NULL;
    }
    dims->arena = &g->arena;
    g->dims = dims;
    return g;
}

void graph_free(graph *g)
{
    if (!g) return;
    arena_free(&g->arena);
    free(g);
}

/* Passes on a failure whose message is set. */
static int poison(graph *g, coda_status status)
{
    graph_poison(g, status, "%s", fail_message());
    return -1;
}

/* The same of a node's operands. */
static int refuse(graph *g, coda_status status, const struct node *n)
{
    graph_refuse(g, status, (unsigned)n->op < OP_COUNT ? op_info[n->op].name : NULL, n->in, n->nin);
    return -1;
}

static coda_status out_of_memory(const graph *g)
{
    return fail(CODA_E_MEMORY, "graph: out of memory after %d nodes", g->nodes);
}

/* The array with place for one more element; NULL with the message set. */
static void *room(graph *g, void *array, int count, int *capacity, size_t size)
{
    void *wider = count < MAX_NODES ? arena_grow(&g->arena, array, count, capacity, size) : NULL;
    if (!wider) out_of_memory(g);
    return wider;
}

/* ---- Names ---- */

enum { NAME_OF_SYMBOL = INT32_MAX - 1 };

/* ", by weight f32[4,8]" */
static struct type_text taken_by(const graph *g, const char *name)
{
    struct type_text w = {""};
    int i = names_find(&g->names, name, INT32_MAX);
    if (i == NAME_OF_SYMBOL) snprintf(w.s, sizeof w.s, ", by a symbol");
    else if (i < 0) snprintf(w.s, sizeof w.s, ", by an output");
    else if (i < g->nodes)
        format_line(w.s, sizeof w.s, ", by %s %.80s", op_info[g->node[i].op].text,
                    type_text(&g->node[i].type).s);
    return w;
}

/* Copies the name into the arena and claims it for `value`. */
static coda_status claim_name(graph *g, const char *what, const char **name, int value)
{
    if (!*name) return fail(CODA_E_INVALID, "%s: the name is NULL", what);
    if (!name_valid(*name))
        return fail(CODA_E_INVALID,
                    "%s: `%.40s` is no name: a letter or _, then letters, digits, _ or .,"
                    " at most 255",
                    what, *name);
    if (names_find(&g->names, *name, INT32_MAX) != INT32_MAX)
        return fail(CODA_E_INVALID, "%s %s: the name is taken%s", what, *name, taken_by(g, *name).s);
    const char *copy = arena_string(&g->arena, *name);
    if (!copy || !names_add(&g->names, &g->arena, copy, value)) return out_of_memory(g);
    *name = copy;
    return CODA_OK;
}

int64_t graph_symbol(graph *g, const char *name, int64_t least, int64_t most, int64_t multiple)
{
    if (g->status != CODA_OK) return DIM_NONE;
    coda_status s = claim_name(g, "symbol", &name, NAME_OF_SYMBOL);
    int64_t d = s == CODA_OK ? dims_symbol(g->dims, name, least, most, multiple) : DIM_NONE;
    if (d == DIM_NONE) poison(g, fail_status());
    return d;
}

/* ---- Append ---- */

/* Moves operands into the arena: none absent at the end, at least NODE_READABLE readable. */
static coda_status own_operands(graph *g, struct node *n)
{
    const int *in = n->in;
    while (n->nin > op_info[n->op].least && in[n->nin - 1] < 0) n->nin--;
    int readable = MAX(n->nin, NODE_READABLE);
    n->in = ARENA_NEW(&g->arena, int, readable);
    if (!n->in) return out_of_memory(g);
    for (int i = 0; i < readable; i++) n->in[i] = i < n->nin ? MAX(in[i], -1) : -1;
    return CODA_OK;
}

/* A user map belongs to one graph: another's is found by its name. */
static coda_status own_prim(const graph *g, struct node *n)
{
    if (!n->prim || n->prim->header) return CODA_OK;
    const char *name = n->prim->name;
    n->prim = graph_find_prim(g, name);
    return n->prim ? CODA_OK : fail(CODA_E_INVALID, "%s: not defined in this graph", name);
}

static coda_status admit_leaf(graph *g, struct node *n)
{
    int *leaf = room(g, g->leaf, g->leaves, &g->leaf_capacity, sizeof *leaf);
    if (!leaf) return CODA_E_MEMORY;
    g->leaf = leaf;
    coda_status s = claim_name(g, op_info[n->op].text, &n->name, g->nodes);
    if (s != CODA_OK) return s;
    n->leaf = g->leaves++;
    g->leaf[n->leaf] = g->nodes;
    return CODA_OK;
}

/* Checks and completes a node that is to stand at g->nodes. */
static coda_status admit(graph *g, struct node *n)
{
    coda_status s = node_check(g, n, g->nodes);
    if (s == CODA_OK) s = own_prim(g, n);
    if (s == CODA_OK) s = own_operands(g, n);
    if (op_is_leaf(n->op)) n->type.dims = g->dims;
    if (s == CODA_OK) s = shape_infer(g, n);
    if (!n->scope) n->scope = graph_scope_now(g);
    if (s == CODA_OK) s = graph_scope(g, &n->scope);
    if (s != CODA_OK) return s;
    struct node *node = room(g, g->node, g->nodes, &g->node_capacity, sizeof *node);
    if (!node) return CODA_E_MEMORY;
    g->node = node;
    n->leaf = n->output = n->last_output = n->next = -1;
    n->state = node_state(g, n, g->nodes);
    if (op_is_leaf(n->op)) return admit_leaf(g, n);
    n->name = NULL;
    memset(n->stride, 0, sizeof n->stride);
    if (op_is_version(n->op)) memcpy(n->stride, g->node[n->in[VERSION_OF]].stride, sizeof n->stride);
    return CODA_OK;
}

/* A rewrite that cannot be made, which is no failure: this thread's message stays as it is. */
static int read_too_late(graph *g)
{
    g->stale = true;
    g->status = CODA_E_UNSUPPORTED;
    snprintf(g->error, sizeof g->error, "rewrite: a state is read after it was written to");
    return -1;
}

void graph_take_back(graph *g, int nodes)
{
    g->nodes = nodes;
    if (!g->stale) return;
    g->stale = false;
    g->status = CODA_OK;
}

int graph_append(graph *g, const struct node *n)
{
    if (!g || g->closed || g->status != CODA_OK) return -1;
    struct node copy = *n;
    if (g->rewritten && state_stale(g, n, g->nodes) >= 0) return read_too_late(g);
    coda_status s = admit(g, &copy);
    if (s != CODA_OK) return refuse(g, s, n);
    if (op_is_version(copy.op)) g->node[copy.in[VERSION_OF]].next = g->nodes;
    if (copy.origin < 0) copy.origin = MAX(g->nodes, g->origins);
    g->origins = MAX(g->origins, copy.origin + 1);
    g->node[g->nodes] = copy;
    return g->nodes++;
}

static coda_status admit_output(graph *g, struct output *o, const int64_t *stride)
{
    if (o->value < 0 || o->value >= g->nodes)
        return fail(CODA_E_INVALID, "output %.40s: %s", o->name ? o->name : "(NULL)",
                    o->value < 0 ? "the value is CODA_NONE" : "no value of this graph");
    const struct type *t = &g->node[o->value].type;
    if (g->node[o->value].op == OP_GROUP)
        return fail(CODA_E_INVALID, "output %.40s: the value is a group, no tensor",
                    o->name ? o->name : "(NULL)");
    dense_strides(t, o->stride);
    if (stride) memcpy(o->stride, stride, sizeof *stride * (size_t)t->rank);
    coda_status s = output_check(o->name, t, o->add);
    if (s == CODA_OK) s = claim_name(g, "output", &o->name, ~g->outputs);
    return s == CODA_OK ? strides_check("output", o->name, t, o->stride) : s;
}

static int append_output(graph *g, const char *name, int value, const int64_t *stride, bool add)
{
    if (!g || g->status != CODA_OK) return -1;
    struct output o = {.name = name, .value = value, .next = -1, .add = add};
    coda_status s = admit_output(g, &o, stride);
    if (s != CODA_OK) return poison(g, s);
    struct output *output = room(g, g->output, g->outputs, &g->output_capacity, sizeof o);
    if (!output) return poison(g, CODA_E_MEMORY);
    g->output = output;
    g->output[g->outputs] = o;
    struct node *n = &g->node[value];
    if (n->output < 0) n->output = g->outputs;
    else g->output[n->last_output].next = g->outputs;
    n->last_output = g->outputs;
    return g->outputs++;
}

int graph_append_output(graph *g, const char *name, int value, const int64_t *stride)
{
    return append_output(g, name, value, stride, false);
}

int graph_append_sum(graph *g, const char *name, int value, const int64_t *stride)
{
    return append_output(g, name, value, stride, true);
}

/* ---- From one graph to another ---- */

int *graph_map_operands(graph *to, const struct node *n, const int *map)
{
    int *in = ARENA_NEW(&to->arena, int, MAX(n->nin, 1));
    for (int i = 0; in && i < n->nin; i++) in[i] = n->in[i] < 0 ? -1 : map[n->in[i]];
    if (!in) poison(to, out_of_memory(to));
    return in;
}

int graph_last_exchange(const graph *g, int group)
{
    int v = g->nodes - 1;
    while (v >= 0 && (!op_is_exchange(g->node[v].op) || g->node[v].in[EXCHANGE_GROUP] != group)) v--;
    return v;
}

/* An exchange whose predecessor is none any more comes behind the last one that is there. */
int graph_copy_node(graph *to, const graph *from, int n, const int *map)
{
    struct node copy = from->node[n];
    int *in = graph_map_operands(to, &copy, map);
    copy.in = in;
    if (in && op_is_exchange(copy.op) && copy.nin > EXCHANGE_BEFORE) {
        int before = in[EXCHANGE_BEFORE];
        if (before < 0 || !op_is_exchange(to->node[before].op))
            in[EXCHANGE_BEFORE] = graph_last_exchange(to, in[EXCHANGE_GROUP]);
    }
    return graph_append(to, &copy);
}

graph *graph_like(const graph *from)
{
    graph *g = graph_new();
    if (!g) return NULL;
    g->rewritten = true;
    g->origins = MAX(from->origins, from->nodes);
    g->node = ARENA_NEW(&g->arena, struct node, from->nodes + 1); /* it mostly gets as many */
    g->node_capacity = g->node ? from->nodes + 1 : 0;
    for (int i = 0; i < from->maps; i++) {
        const struct prim *p = from->map[i];
        coda_map_def def = {sizeof def, p->name, p->inputs, p->params, p->source, p->reference, {NULL}};
        for (int k = 0; k < p->inputs; k++) def.grad[k] = prim_partial_name(p, k);
        if (graph_define_map(g, &def) == CODA_OK) continue;
        graph_free(g);
        return NULL;
    }
    return g;
}

int graph_copy_outputs(graph *to, const graph *from, const int *map)
{
    for (int i = 0; i < from->outputs; i++) {
        const struct output *o = &from->output[i];
        if (append_output(to, o->name, map[o->value], o->stride, o->add) < 0) return -1;
    }
    return 0;
}

/* ---- Questions ---- */

int graph_uses(const graph *g, int value)
{
    int uses = 0;
    for (int i = value + 1; i < g->nodes; i++)
        for (int j = 0; j < g->node[i].nin; j++) uses += g->node[i].in[j] == value;
    for (int o = g->node[value].output; o >= 0; o = g->output[o].next) uses++;
    return uses;
}

/* ---- Shorthands ---- */

static int append_prim(graph *g, enum op op, const char *name, int a, int b, const float *params)
{
    if (g->status != CODA_OK) return -1;
    const struct prim *prim = graph_find_prim(g, name);
    if (!prim) {
        graph_poison(g, CODA_E_INVALID, "no primitive is called %.40s", name);
        return -1;
    }
    struct node n = {.op = op, .prim = prim, .nin = b < 0 ? 1 : 2, .in = (int[]){a, b}, .origin = -1};
    if (params) memcpy(n.attr.map.param, params, sizeof *params * (size_t)prim->params);
    return graph_append(g, &n);
}

int graph_map(graph *g, const char *prim, int a, int b, const float *params)
{
    return append_prim(g, OP_MAP, prim, a, b, params);
}

int graph_reduce(graph *g, const char *prim, int x, int key)
{
    return append_prim(g, OP_REDUCE, prim, x, key, NULL);
}

int graph_constant(graph *g, coda_dtype t, float value)
{
    struct node n = {.op = OP_CONSTANT, .attr.constant = {t, value}, .origin = -1};
    return graph_append(g, &n);
}

int graph_reshape(graph *g, int x, int rank, const int64_t *dim)
{
    struct node n = {.op = OP_RESHAPE, .nin = 1, .in = (int[]){x}, .origin = -1};
    n.attr.reshape.rank = rank;
    for (int i = 0; i < rank && i < CODA_MAX_RANK; i++) n.attr.reshape.dim[i] = dim[i];
    return graph_append(g, &n);
}
