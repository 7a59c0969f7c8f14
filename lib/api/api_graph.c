/*
 * api_graph.c -- the public graph: life, text, leaves, outputs, maps of the user, and questions about it.
 *
 * A coda_value is a node's index plus one. The first mistake poisons the graph and every later call
 * is quiet, so that a formula needs no check between its calls.
 */
#include "api.h"

#include "bind.h"
#include "eval.h"
#include "near.h"

#include <stdlib.h>
#include <string.h>

/* ---- Shared by all builder calls ---- */

bool build_ready(graph *g, const char *what)
{
    if (!g) return fail(CODA_E_INVALID, "%s: the graph is NULL", what), false;
    g->later = g->status != CODA_OK;
    return !g->later;
}

coda_value build_value(int index) { return (coda_value){(uint32_t)(index + 1)}; }

int build_index(graph *g, const char *what, coda_value v)
{
    if (v.id <= (uint32_t)g->nodes) return (int)v.id - 1;
    graph_poison(g, CODA_E_INVALID, "%s: value %u is of another graph; this one has %d", what, v.id,
                 g->nodes);
    return -2;
}

coda_value build_node(graph *g, const char *what, struct node n, const coda_value *in, int nin)
{
    int few[PRIM_MAX_INPUTS];
    if (!build_ready(g, what)) return CODA_NONE;
    int *index = nin <= ARRAY_SIZE(few) ? few : ARENA_NEW(&g->arena, int, nin);
    if (!index) {
        graph_poison(g, CODA_E_MEMORY, "%s: out of memory for %d operands", what, nin);
        return CODA_NONE;
    }
    for (int i = 0; i < nin; i++) {
        index[i] = build_index(g, what, in[i]);
        if (index[i] < -1) return CODA_NONE;
    }
    n.in = index;
    n.nin = nin;
    n.origin = -1;
    return build_value(graph_append(g, &n));
}

const struct type *value_type(const graph *g, coda_value v)
{
    return g && !g->status && v.id > 0 && v.id <= (uint32_t)g->nodes ? &g->node[v.id - 1].type : NULL;
}

const struct type *build_type(graph *g, const char *what, coda_value v)
{
    int i = build_index(g, what, v);
    return i >= 0 ? &g->node[i].type : NULL;
}

bool build_options(graph *g, const char *what, const struct sized *s, void *own, const void *given)
{
    if (!build_ready(g, what)) return false;
    coda_status status = sized_read(what, s, own, given);
    if (status != CODA_OK) graph_poison(g, status, "%s", fail_message());
    return status == CODA_OK;
}

coda_value build_refuse(graph *g, const char *const *names, const coda_value *in, int nin)
{
    int index[PRIM_MAX_INPUTS];
    for (int i = 0; i < nin; i++) index[i] = (int)MIN(in[i].id, INT32_MAX) - 1;
    graph_refuse(g, fail_status(), names, index, nin);
    return CODA_NONE;
}

/* ---- Life ---- */

CODA_API coda_graph *coda_graph_new(void) { return graph_new(); }
CODA_API void coda_graph_free(coda_graph *g) { graph_free(g); }

CODA_API coda_status coda_graph_status(const coda_graph *g)
{
    if (!g) return fail(CODA_E_INVALID, "the graph is NULL");
    return graph_mistake(g);
}

CODA_API coda_status coda_define_map(coda_graph *g, const coda_map_def *def)
{
    coda_map_def own;
    if (!g || !def) return fail(CODA_E_INVALID, "define_map: %s is NULL", g ? "def" : "the graph");
    coda_status s = SIZED_READ("define_map", coda_map_def, &own, def);
    if (own.inputs == 0) own.inputs = 1;
    if (s == CODA_OK) return graph_define_map(g, &own);
    graph_poison(g, s, "%s", fail_message());
    return s;
}

/* ---- Text ---- */

CODA_API coda_status coda_graph_parse(coda_graph **out, const char *text)
{
    if (out) *out = NULL;
    if (!out || !text) return fail(CODA_E_INVALID, "graph parse: %s is NULL", out ? "text" : "out");
    *out = graph_parse(text);
    return *out ? CODA_OK : fail_status();
}

CODA_API int64_t coda_graph_print(const coda_graph *g, char *buf, size_t size)
{
    if (!g || (!buf && size)) return fail(CODA_E_INVALID, "graph print: %s is NULL", g ? "buf" : "the graph");
    struct text t = {0};
    graph_print(g, &t);
    int64_t length = text_emit(&t, buf, size);
    text_free(&t);
    return length;
}

/* ---- Leaves and outputs ---- */

static coda_value leaf(graph *g, enum op op, const char *name, coda_dtype t, int rank, const int64_t *dims,
                       const int64_t *strides, bool dense)
{
    const char *what = op_info[op].text, *shown = name ? name : "(NULL)";
    struct node n = {.op = op, .name = name, .type = {t, rank, {0}}, .origin = -1};
    if (!build_ready(g, what)) return CODA_NONE;
    n.type.dims = g->dims;
    if (rank > 0 && (!dims || (!dense && !strides))) {
        graph_poison(g, CODA_E_INVALID, "%s %.40s: %s are NULL", what, shown, dims ? "strides" : "dims");
        return CODA_NONE;
    }
    if (rank > 0 && rank <= CODA_MAX_RANK) memcpy(n.type.dim, dims, sizeof *dims * (size_t)rank);
    if (type_check(what, shown, &n.type) != CODA_OK) {
        graph_poison(g, CODA_E_INVALID, "%s", fail_message());
        return CODA_NONE;
    }
    dense_strides(&n.type, n.stride);
    if (!dense && rank) memcpy(n.stride, strides, sizeof *strides * (size_t)rank);
    return build_value(graph_append(g, &n));
}

CODA_API coda_value coda_input(coda_graph *g, const char *name, coda_dtype t, int rank, const int64_t *dims)
{
    return leaf(g, OP_INPUT, name, t, rank, dims, NULL, true);
}

CODA_API coda_value coda_input_strided(coda_graph *g, const char *name, coda_dtype t, int rank,
                                       const int64_t *dims, const int64_t *strides)
{
    return leaf(g, OP_INPUT, name, t, rank, dims, strides, false);
}

CODA_API void coda_consume(coda_graph *g, coda_value x)
{
    if (!build_ready(g, "consume")) return;
    int i = build_index(g, "consume", x);
    if (i < -1) return;
    if (i >= 0 && g->node[i].op == OP_INPUT) g->node[i].attr.input.consumed = 1;
    else if (i < 0) graph_poison(g, CODA_E_INVALID, "consume: x is CODA_NONE; it must be an input");
    else
        graph_poison(g, CODA_E_INVALID, "consume: x is a result of %s; it must be an input",
                     node_text(&g->node[i]));
}

CODA_API coda_value coda_weight(coda_graph *g, const char *name, coda_dtype t, int rank, const int64_t *dims)
{
    return leaf(g, OP_WEIGHT, name, t, rank, dims, NULL, true);
}

CODA_API coda_value coda_weight_strided(coda_graph *g, const char *name, coda_dtype t, int rank,
                                        const int64_t *dims, const int64_t *strides)
{
    return leaf(g, OP_WEIGHT, name, t, rank, dims, strides, false);
}

/* `rank`: none. */
static int first_symbolic(int rank, const int64_t *dims)
{
    int d = 0;
    while (d < rank && dims[d] >= -1) d++;
    return d;
}

/* The bytes, a leaf, and what they mean. */
static coda_value packed(graph *g, const char *name, const struct pack_format *f, int rank,
                         const int64_t *dims, coda_dtype t)
{
    struct node n = {.op = OP_UNPACK, .attr.unpack = {.format = graph_format(f), .rank = rank, .to = t}};
    memcpy(n.attr.unpack.dim, dims, sizeof *dims * (size_t)rank);
    int64_t bytes = graph_packed_bytes(f, rank, dims);
    coda_value w = leaf(g, OP_WEIGHT, name, CODA_U8, 1, &bytes, NULL, true);
    return build_node(g, "weight_packed", n, OPERANDS(w));
}

CODA_API coda_value coda_weight_packed(coda_graph *g, const char *name, const coda_pack_format *format,
                                       int rank, const int64_t *dims, coda_dtype t)
{
    struct pack_format f;
    const char *shown = name ? name : "(NULL)";
    int symbolic;
    if (!build_ready(g, "weight_packed")) return CODA_NONE;
    coda_status s = read_pack_format(format, &f);
    if (s != CODA_OK) graph_poison(g, s, "weight %.40s: %s", shown, fail_message());
    else if (rank < 2 || rank > CODA_MAX_RANK || !dims)
        graph_poison(g, CODA_E_INVALID, "weight %.40s: rank is %d%s; a packed weight has 2..%d dims", shown,
                     rank, dims ? "" : " but dims are NULL", CODA_MAX_RANK);
    else if ((symbolic = first_symbolic(rank, dims)) < rank)
        graph_poison(g, CODA_E_INVALID,
                     "weight %.40s: dimension %d is symbolic; a packed weight's are numbers", shown,
                     symbolic);
    else if ((s = graph_check_matrices(rank, dims, t)) != CODA_OK)
        graph_poison(g, s, "weight %.40s: %s", shown, fail_message());
    else return packed(g, name, &f, rank, dims, t);
    return CODA_NONE;
}

CODA_API coda_value coda_state(coda_graph *g, const char *name, coda_dtype t, int rank, const int64_t *dims)
{
    return leaf(g, OP_STATE, name, t, rank, dims, NULL, true);
}

CODA_API coda_value coda_state_strided(coda_graph *g, const char *name, coda_dtype t, int rank,
                                       const int64_t *dims, const int64_t *strides)
{
    return leaf(g, OP_STATE, name, t, rank, dims, strides, false);
}

CODA_API coda_value coda_scalar(coda_graph *g, const char *name, coda_dtype t)
{
    return leaf(g, OP_SCALAR, name, t, 0, NULL, NULL, true);
}

CODA_API coda_value coda_constant(coda_graph *g, coda_dtype t, double value)
{
    if (!build_ready(g, "constant")) return CODA_NONE;
    if (dtype_is_index(t) && value != (double)(float)value) { /* what rounds is no integer below 2^24 */
        graph_poison(g, CODA_E_INVALID, "constant: %.17g is no %s below 2^24", value, dtype_name(t));
        return CODA_NONE;
    }
    return build_value(graph_constant(g, t, (float)value));
}

typedef int append_output(graph *g, const char *name, int value, const int64_t *stride);

static void output(graph *g, const char *name, coda_value v, const int64_t *strides, append_output *append)
{
    if (!build_ready(g, "output")) return;
    int index = build_index(g, "output", v);
    if (index >= -1) append(g, name, index, strides);
}

static void output_strided(graph *g, const char *name, coda_value v, const int64_t *strides,
                           append_output *append)
{
    if (strides || !build_ready(g, "output")) return output(g, name, v, strides, append);
    graph_poison(g, CODA_E_INVALID, "output %.40s: strides are NULL", name ? name : "(NULL)");
}

CODA_API void coda_output(coda_graph *g, const char *name, coda_value v)
{
    output(g, name, v, NULL, graph_append_output);
}

CODA_API void coda_output_strided(coda_graph *g, const char *name, coda_value v, const int64_t *strides)
{
    output_strided(g, name, v, strides, graph_append_output);
}

CODA_API void coda_output_add(coda_graph *g, const char *name, coda_value v)
{
    output(g, name, v, NULL, graph_append_sum);
}

CODA_API void coda_output_add_strided(coda_graph *g, const char *name, coda_value v, const int64_t *strides)
{
    output_strided(g, name, v, strides, graph_append_sum);
}

/* ---- Questions ---- */

CODA_API int coda_value_shape(const coda_graph *g, coda_value v, int64_t *dims, coda_dtype *t)
{
    if (!g || v.id == 0 || v.id > (uint32_t)g->nodes) {
        fail(CODA_E_INVALID, "value_shape: value %u of %d", v.id, g ? g->nodes : 0);
        return -1;
    }
    const struct type *type = &g->node[v.id - 1].type;
    if (dims) memcpy(dims, type->dim, sizeof *dims * (size_t)type->rank);
    if (t) *t = type->dtype;
    return type->rank;
}

CODA_API coda_value coda_graph_find(const coda_graph *g, const char *name)
{
    if (!g || !name)
        return fail(CODA_E_INVALID, "graph_find: %s is NULL", g ? "name" : "the graph"), CODA_NONE;
    int i = names_find(&g->names, name, INT32_MAX),
        node = i < 0 && -i <= g->outputs ? g->output[~i].value : i;
    if (i != INT32_MAX && node >= 0 && node < g->nodes) return (coda_value){(uint32_t)node + 1};
    struct near n = {.word = name};
    for (int k = 0; k < g->leaves; k++) near_try(&n, g->node[g->leaf[k]].name);
    for (int k = 0; k < g->outputs; k++) near_try(&n, g->output[k].name);
    fail(CODA_E_INVALID, "graph_find: none of %d leaves and outputs is called \"%.80s\"%s%s%s", graph_args(g),
         name, n.best ? "; do you mean " : "", n.best ? n.best : "", n.best ? "?" : "");
    return CODA_NONE;
}

CODA_API int coda_graph_args(const coda_graph *g) { return g ? graph_args(g) : 0; }

CODA_API coda_status coda_graph_arg(const coda_graph *g, int index, coda_arg_info *out)
{
    coda_arg_info own;
    if (!g || !out) return fail(CODA_E_INVALID, "graph_arg: %s is NULL", g ? "out" : "the graph");
    if (SIZED_CHECK("graph_arg", coda_arg_info, out)) return CODA_E_INVALID;
    if (index < 0 || index >= graph_args(g))
        return fail(CODA_E_INVALID, "graph_arg: index is %d of %d", index, graph_args(g));
    graph_arg(g, index, &own);
    SIZED_WRITE(coda_arg_info, out, &own);
    return CODA_OK;
}

/* ---- Evaluate ---- */

/* Leaves are read by their strides; outputs are dense doubles. */
static void places_of(const graph *g, struct place *place)
{
    int n = 0;
    for (int i = 0; i < g->nodes; i++) {
        const struct node *l = &g->node[i];
        if (!op_is_leaf(l->op)) continue;
        place[n++] =
            place_of(l->name, leaf_kind(l), l->type.dtype, l->type.rank, l->type.dim, l->stride, true);
    }
    for (int i = 0; i < g->outputs; i++) {
        int64_t elements = type_elements(&g->node[g->output[i].value].type);
        place[n++] = (struct place){.name = g->output[i].name,
                                    .kind = g->output[i].add ? CODA_ARG_SUM : CODA_ARG_OUTPUT,
                                    .align = sizeof(double),
                                    .at = lattice_bytes(MIN(elements, INT64_MAX / 32) * 8)};
    }
}

CODA_API coda_status coda_evaluate(const coda_graph *g, void *const *args)
{
    coda_status s = coda_graph_status(g);
    if (s == CODA_OK) s = symbols_refuse("evaluate", "graph", g->dims, "coda_graph_bind");
    if (s != CODA_OK) return s;
    struct arguments b = {.call = "evaluate", .places = coda_graph_args(g), .args = args, .states = true};
    struct place *place = calloc((size_t)b.places + 1, sizeof *place);
    if (!place) return fail(CODA_E_MEMORY, "evaluate: out of memory for %d arguments", b.places);
    places_of(g, place);
    b.place = place;
    s = arguments_check(&b);
    free(place);
    return s == CODA_OK ? graph_evaluate(g, args) : s;
}
