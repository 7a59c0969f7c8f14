/*
 * insert_copies.c -- make a copy wherever strides cannot say what an operation needs. Exact.
 *
 *     f(x)  ==>  f(cast(x to its own dtype))
 *
 * In: a rewritten graph. Out: every reshape is a view; operands of products are matrices by
 * strides; every output and every part of a concat is a value that some kernel stores there.
 *
 * Where constants fold, coda_prepare computes them once, and keeps them in memory of their own. A part of
 * a concat that is computed in each run, and an output, lie in memory that each run writes anew: there a
 * run leaves a copy of the constant.
 *
 * What writes over a version of a state gets the readers of that version as operands behind its own, so that
 * all who look for an order find it among operands. An output of a version is a copy made before.
 */
#include "guards.h"
#include "rewrite.h"
#include "view.h"

#include <stdlib.h>
#include <string.h>

/* A value that is stored in more places is copied to the others. */
enum { MOST_STORES = 16 };

/* A value that reads a version of a state. */
struct reader {
    int value;
    struct reader *before; /* another one of the version, further left */
};

struct copier {
    const graph *in;
    graph *out;
    int *map;     /* in's values -> out's */
    bool *folded; /* of in's values: coda_prepare computes it */
    bool *parts;  /* of in's values: a concat whose operands products read where they lie */
    int *left; /* of in's values that are folded, or written over: what each run leaves of it; 0: nothing */
    struct arena arena;
    struct view *view;      /* of out's values, as far as they are asked for */
    int *stores;            /* of out's values: outputs and parts of concats that they are */
    int *spare;             /* the copy that takes what is too much; 0: none */
    struct reader **reader; /* of out's values, of which versions have some: the last one */
    int known, capacity;
};

static void read_by(struct copier *c, int version, int value)
{
    struct reader *last = c->reader[version], *r;
    if (last && last->value == value) return;
    if (!(r = ARENA_NEW(&c->arena, struct reader, 1))) return;
    *r = (struct reader){value, last};
    c->reader[version] = r;
}

/* A view is no reader; who reads it reads what it is a view of. */
static void note_versions(struct copier *c, int value)
{
    const struct node *n = &c->out->node[value];
    for (int i = 0; i < MIN(n->nin, state_operands(n)) && !op_is_view(n->op); i++) {
        int version = n->in[i] >= 0 ? c->out->node[n->in[i]].state : -1;
        if (version >= 0) read_by(c, version, value);
    }
}

/* Makes room for facts about all values of `out`, and finds the views and versions of the new ones. */
static bool know(struct copier *c)
{
    if (c->capacity < c->out->nodes) {
        int wider = MAX(64, 2 * c->out->nodes);
        struct view *view = ARENA_NEW(&c->arena, struct view, wider);
        int *stores = ARENA_NEW(&c->arena, int, wider), *spare = ARENA_NEW(&c->arena, int, wider);
        struct reader **reader = ARENA_NEW(&c->arena, struct reader *, wider);
        if (c->arena.failed) return false;
        for (int i = 0; i < c->known; i++)
            view[i] = c->view[i], stores[i] = c->stores[i], spare[i] = c->spare[i], reader[i] = c->reader[i];
        c->view = view, c->stores = stores, c->spare = spare, c->reader = reader, c->capacity = wider;
    }
    for (; c->known < c->out->nodes; c->known++) {
        view_extend(c->out, c->known, c->view);
        note_versions(c, c->known);
    }
    return !c->arena.failed;
}

static int append_node(struct copier *c, const struct node *n)
{
    int value = graph_append(c->out, n);
    return value >= 0 && know(c) ? value : -1;
}

static int copy(struct copier *c, int value)
{
    struct node n = {.op = OP_CAST, .nin = 1, .in = &value, .origin = -1};
    if (value < 0) return -1;
    n.scope = c->out->node[value].scope;
    n.attr.cast.to = c->out->node[value].type.dtype;
    return append_node(c, &n);
}

/* What each run computes of a value of `in`, to leave it where it is to lie. */
static int left_by_run(struct copier *c, int value)
{
    if (!c->folded[value] && !c->left[value]) return c->map[value];
    if (!c->left[value]) c->left[value] = copy(c, c->map[value]);
    return c->left[value];
}

/* The value, or a copy of it, that one more output or concat may name. */
static int stored(struct copier *c, int value)
{
    if (value < 0) return -1;
    if (c->stores[value] < MOST_STORES) {
        c->stores[value]++;
        return value;
    }
    int spare = c->spare[value];
    if (!spare || c->stores[spare] == MOST_STORES) spare = copy(c, value);
    if (spare < 0) return -1;
    c->stores[spare]++;
    return c->spare[value] = spare;
}

/* Can a GEMM store a value of type t by these strides? */
static bool is_matrix(const struct type *t, const int64_t *stride)
{
    int64_t s;
    return t->rank < 2 || view_collapse(t, stride, 0, t->rank - 1, &s);
}

/* One dense buffer holds the result, and only that. */
static bool is_whole(enum op op) { return op_is(op, KIND_WHOLE); }

/* A kernel computes the value, and can store it anywhere. */
static bool is_stored(const graph *g, int value)
{
    enum op op = g->node[value].op;
    return !op_is_leaf(op) && !op_is_view(op) && !is_whole(op) && !op_is_version(op);
}

static int part_of_concat(struct copier *c, const struct node *whole, int value)
{
    int64_t stride[CODA_MAX_RANK];
    view_part(whole, stride);
    bool good = value < 0 || (is_stored(c->out, value) && is_matrix(&c->out->node[value].type, stride));
    return stored(c, good ? value : copy(c, value));
}

static bool columns_adjacent(const struct copier *c, int value)
{
    const struct type *t = &c->out->node[value].type;
    const struct view *v = &c->view[value];
    return v->base >= 0 && (!extent_reaches(type_columns(t), 2) || extent_is_one(v->stride[t->rank - 1]));
}

/* Is there one stride from row to row, a row being one number if it `is_number`? */
static bool rows_are_even(const struct copier *c, int value, bool is_number)
{
    const struct type *t = &c->out->node[value].type;
    const struct view *v = &c->view[value];
    int64_t stride;
    return v->base >= 0 && view_collapse(t, v->stride, 0, is_number ? t->rank : t->rank - 1, &stride);
}

static bool is_dense(const struct copier *c, int value)
{
    const struct type *t = &c->out->node[value].type;
    int64_t dense[CODA_MAX_RANK];
    dense_strides(t, dense);
    return c->view[value].base >= 0 && extents_all_equal(dense, c->view[value].stride, t->rank);
}

/* A scan reads rows of tokens, and small vectors and states as they are in memory of their own. */
static bool lies_for_scan(const struct copier *c, int value, int operand)
{
    bool token = operand == SCAN_GATE || (operand <= SCAN_C && operand != SCAN_A);
    if (operand == SCAN_STARTS) return c->view[value].base >= 0;
    return token ? columns_adjacent(c, value) : is_dense(c, value);
}

/* Kernels have scalars among their parameters, where maps read them. Who else does reads memory. */
static void copy_scalars(struct copier *c, struct node *n)
{
    if (n->op == OP_MAP || n->op == OP_CAST || op_is_view(n->op)) return;
    for (int i = 0; i < n->nin; i++) {
        int base = n->in[i] >= 0 ? c->view[n->in[i]].base : -1;
        if (base >= 0 && c->out->node[base].op == OP_SCALAR) n->in[i] = copy(c, n->in[i]);
    }
}

/* ---- States ---- */

/* Outputs of a version are copies made before it is written over. */
static bool leave_outputs(struct copier *c, int version)
{
    for (int i = 0; i < c->in->outputs; i++) {
        int value = c->in->output[i].value;
        if (c->in->node[value].state != version || c->left[value]) continue;
        if ((c->left[value] = copy(c, c->map[value])) < 0) return false;
    }
    return true;
}

/* What writes over a version comes after all that read it, which its last operands say; and does not read it
 * itself while it writes. */
static bool write_over(struct copier *c, struct node *n)
{
    int version = n->in[VERSION_OF], readers = 0, operands = state_operands(n);
    for (int i = 1; i < MIN(operands, n->nin); i++)
        if (n->in[i] >= 0 && c->out->node[n->in[i]].state == version && (n->in[i] = copy(c, n->in[i])) < 0)
            return false;
    for (const struct reader *r = c->reader[version]; r; r = r->before) readers++;
    int *in = ARENA_NEW(&c->out->arena, int, MAX(n->nin, operands) + readers);
    if (!in) return graph_poison(c->out, CODA_E_MEMORY, "out of memory for %d nodes", c->in->nodes), false;
    memcpy(in, n->in, sizeof *in * (size_t)n->nin);
    while (readers && n->nin < operands) in[n->nin++] = -1;
    int at = n->nin += readers;
    for (const struct reader *r = c->reader[version]; r; r = r->before) in[--at] = r->value;
    n->in = in;
    return true;
}

/* Refuses to copy what is packed. */
static bool refuse_packed(struct copier *c, const struct node *n, int operand)
{
    const graph *g = c->out;
    int packed = graph_packed(g, n->in[operand]);
    if (packed < 0) return true;
    graph_poison(c->out, CODA_E_UNSUPPORTED,
                 "%s: %s is a view of %s, which is packed: of its rows of %lld columns, whose matrices fill "
                 "blocks of %d rows, it takes parts that have no strides",
                 op_info[n->op].text, op_info[n->op].name[operand],
                 g->node[g->node[packed].in[UNPACK_W]].name, (long long)type_columns(&g->node[packed].type),
                 PACK_ROWS);
    return false;
}

/* Scales first: they are few. */
static bool copy_matrices(struct copier *c, struct node *n)
{
    struct matmul_view mv;
    int *x = &n->in[MATMUL_X], *w = &n->in[MATMUL_W];
    if (view_matmul(c->out, n, c->view, &mv)) return true;
    for (int i = SCALED_MATMUL_X_SCALE; n->op == OP_SCALED_MATMUL && i <= SCALED_MATMUL_W_SCALE; i++)
        if ((n->in[i] = copy(c, n->in[i])) < 0 || view_matmul(c->out, n, c->view, &mv)) return n->in[i] >= 0;
    *x = copy(c, *x);
    if (*x < 0 || view_matmul(c->out, n, c->view, &mv)) return *x >= 0;
    if (!refuse_packed(c, n, MATMUL_W)) return false;
    *w = copy(c, *w);
    return *w >= 0;
}

static bool table_lies_well(struct copier *c, const struct node *n)
{
    struct view v = c->view[n->in[EMBEDDING_TABLE]];
    const struct node *base = v.base < 0 ? NULL : &c->out->node[v.base];
    struct packed_view packed;
    if (base && base->op == OP_UNPACK &&
        view_packed(base, &v.offset, v.stride, c->out->node[n->in[EMBEDDING_TABLE]].type.dim, 2, &packed))
        return true;
    return refuse_packed(c, n, EMBEDDING_TABLE);
}

/* Appends n (operands already renamed) with copies of the operands that need one; `parts`: it is a concat
 * that needs none. */
static int append(struct copier *c, struct node *n, bool parts)
{
    copy_scalars(c, n);
    if (op_is_version(n->op) && !write_over(c, n)) return -1;
    if (op_is_product(n->op) && !copy_matrices(c, n)) return -1;
    if (n->op == OP_EMBEDDING && !table_lies_well(c, n)) return -1;
    if (n->op == OP_CONCAT) {
        for (int i = 0; i < n->nin && !parts; i++) n->in[i] = part_of_concat(c, n, n->in[i]);
    } else if (n->op == OP_ATTENTION) { /* its kernel reads rows of what it cannot do without */
        for (int i = 0; i < op_info[n->op].least; i++)
            if (!columns_adjacent(c, n->in[i])) n->in[i] = copy(c, n->in[i]);
    } else if (n->op == OP_ATTENTION_GRAD) { /* likewise; of sums it takes any strides */
        for (int i = 0; i < op_info[n->op].least; i++)
            if (i != ATTENTION_GRAD_LSE && !columns_adjacent(c, n->in[i])) n->in[i] = copy(c, n->in[i]);
    } else if (n->op == OP_DELTA) { /* likewise, but for starts */
        for (int i = 0; i < MIN(n->nin, DELTA_STARTS); i++)
            if (n->in[i] >= 0 && !columns_adjacent(c, n->in[i])) n->in[i] = copy(c, n->in[i]);
    } else if (n->op == OP_CONV1D) { /* of weights and starts any strides */
        for (int i = CONV1D_X; i <= CONV1D_BEFORE; i += CONV1D_BEFORE - CONV1D_X)
            if (i < n->nin && n->in[i] >= 0 && !columns_adjacent(c, n->in[i])) n->in[i] = copy(c, n->in[i]);
    } else if (n->op == OP_SCAN) { /* likewise of tokens */
        for (int i = 0; i < n->nin; i++)
            if (n->in[i] >= 0 && !lies_for_scan(c, n->in[i], i)) n->in[i] = copy(c, n->in[i]);
    } else if (op_is_exchange(n->op)) { /* other ranks read it as one run of bytes */
        if (!is_dense(c, n->in[EXCHANGE_X])) n->in[EXCHANGE_X] = copy(c, n->in[EXCHANGE_X]);
    } else if (n->op == OP_NUCLEUS || n->op == OP_ROW_SUMS) { /* rows of x, and numbers of these */
        for (int i = 0; i < n->nin; i++)
            if (n->in[i] >= 0 && !rows_are_even(c, n->in[i], i != NUCLEUS_X)) n->in[i] = copy(c, n->in[i]);
    }
    int value = append_node(c, n);
    if (value >= 0 && n->op == OP_RESHAPE && c->view[value].base < 0) {
        if (!refuse_packed(c, n, RESHAPE_X)) return -1;
        n->in[RESHAPE_X] = copy(c, n->in[RESHAPE_X]);
        value = n->in[RESHAPE_X] < 0 ? -1 : append_node(c, n);
    }
    return value;
}

static bool copy_nodes(struct copier *c)
{
    for (int i = 0; i < c->in->nodes; i++) {
        struct node n = c->in->node[i];
        n.in = graph_map_operands(c->out, &c->in->node[i], c->map);
        for (int j = 0; n.in && j < n.nin && n.op == OP_CONCAT && !c->folded[i]; j++)
            n.in[j] = left_by_run(c, c->in->node[i].in[j]);
        if (op_is_version(n.op) && n.in && !leave_outputs(c, c->in->node[i].in[VERSION_OF])) return false;
        c->map[i] = n.in ? append(c, &n, c->parts[i]) : -1;
        if (c->map[i] < 0) return false;
    }
    return true;
}

/* A dense output of a reshape is the dense output of what was reshaped. */
static int unshaped(const graph *g, int value, int64_t *stride)
{
    int64_t dense[CODA_MAX_RANK];
    dense_strides(&g->node[value].type, dense);
    if (!extents_all_equal(dense, stride, g->node[value].type.rank)) return value;
    while (g->node[value].op == OP_RESHAPE) value = g->node[value].in[RESHAPE_X];
    dense_strides(&g->node[value].type, stride);
    return value;
}

/* Does the kernel of an output's value add to what is there, as nobody else reads the value? */
static bool adds_itself(const graph *g, int value)
{
    while (g->node[value].op == OP_RESHAPE && graph_uses(g, value) == 1) value = g->node[value].in[RESHAPE_X];
    return g->node[value].op == OP_ROW_SUMS && graph_uses(g, value) == 1;
}

/* An output is written by the kernel that computes it: by a copy if there is none, or if it is not a
 * matrix in memory, or if it is not the one dense buffer of what is stored whole, or added to. */
static bool copy_outputs(struct copier *c)
{
    graph *out = c->out;
    for (int i = 0; i < c->in->outputs; i++) {
        const struct output *o = &c->in->output[i];
        int64_t dense[CODA_MAX_RANK], stride[CODA_MAX_RANK];
        memcpy(stride, o->stride, sizeof stride);
        int value = left_by_run(c, o->value);
        if (value < 0) return false;
        value = unshaped(out, value, stride);
        const struct type *t = &out->node[value].type;
        dense_strides(t, dense);
        bool whole = is_whole(out->node[value].op) && out->node[value].output < 0 &&
                     (!o->add || adds_itself(c->in, o->value)) && extents_all_equal(dense, stride, t->rank);
        if (!whole && !(is_stored(out, value) && is_matrix(t, stride))) value = copy(c, value);
        value = stored(c, value);
        if (value < 0) return false;
        int output = o->add ? graph_append_sum(out, o->name, value, stride)
                            : graph_append_output(out, o->name, value, stride);
        if (output < 0) return false;
    }
    return true;
}

/* Which values coda_prepare computes: those that depend on weights alone. */
static void find_folded(const graph *g, bool fold, bool *folded)
{
    for (int i = 0; i < g->nodes; i++) {
        const struct node *n = &g->node[i];
        folded[i] = fold && !op_is_input(n->op) && n->op != OP_IOTA && !node_is_small(n);
        for (int j = 0; j < n->nin; j++) folded[i] = folded[i] && (n->in[j] < 0 || folded[n->in[j]]);
    }
}

graph *insert_copies(const graph *in, coda_fold fold, bool fuse)
{
    struct copier c = {.in = in,
                       .out = graph_like(in),
                       .map = calloc((size_t)in->nodes + 1, sizeof *c.map),
                       .left = calloc((size_t)in->nodes + 1, sizeof *c.left),
                       .folded = calloc((size_t)in->nodes + 1, sizeof *c.folded),
                       .parts = calloc((size_t)in->nodes + 1, sizeof *c.parts)};
    bool memory = c.out && c.map && c.left && c.folded && c.parts;
    if (memory) find_folded(in, fold != CODA_FOLD_NONE, c.folded);
    if (memory && fuse) graph_find_parts(in, c.parts);
    bool ok = memory && copy_nodes(&c) && copy_outputs(&c);
    memory = memory && !c.arena.failed;
    free(c.map);
    free(c.left);
    free(c.folded);
    free(c.parts);
    arena_free(&c.arena);
    if (ok) return c.out;
    if (!memory) fail(CODA_E_MEMORY, "out of memory for %d nodes", in->nodes);
    else if (c.out->status) fail(c.out->status, "%s", c.out->error);
    graph_free(c.out);
    return NULL;
}
