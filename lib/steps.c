/*
 * steps.c -- write the program of each group: steps, ports, buffers; then order the programs.
 *
 * First every program is written without its stores, which shows what must be in memory. A statistic
 * that is in pieces but needed whole gets a small program of its own. Then stores are added.
 */
#include "group.h"

#include <stdlib.h>
#include <string.h>

enum { MOST_STEPS = 160, MOST_PORTS = KERNEL_MAX_POINTERS - 2 };

struct writer {
    struct grouper *gr;
    struct group *q;
    struct program *p;
    int *step_of;    /* node -> its step in this program, -1                                       */
    coda_status status;
};

/* ---- Buffers ---- */

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
static int own_output(const graph *g, int value)
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
    bool same = leaf->op == OP_WEIGHT && type_equal(&leaf->type, &n->type) && is_dense(&leaf->type, leaf->stride);
    return same && graph_uses(g, w) == 1 ? w : -1;
}

static int buffer_of(struct grouper *gr, int value)
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

static int output_buffer(struct grouper *gr, int output)
{
    const graph *g = gr->g;
    int value = g->output[output].value;
    if (own_output(g, value) == output) return buffer_of(gr, value);
    struct buffer b = {.space = SPACE_ARG, .value = value, .arg = leaf_index(g, g->nodes) + output};
    b.bytes = bytes_of(&g->node[value].type);
    return add_buffer(gr, b);
}

static int state_buffer(struct grouper *gr, int value)
{
    struct site *s = &gr->site[value];
    struct buffer b = {.space = s->is_const ? SPACE_PREPARED : SPACE_WORK, .value = value};
    if (s->state_buffer < 0) s->state_buffer = add_buffer(gr, b);
    return s->state_buffer;
}

/* ---- Ports and steps ---- */

static int out_of_room(struct writer *w, const char *what, int most)
{
    if (!w->status) w->status = fail(CODA_E_UNSUPPORTED, "plan: a program needs more than %d %s", most, what);
    return 0;
}

static int add_port(struct writer *w, struct port port)
{
    for (int i = 0; i < w->p->ports; i++)
        if (!memcmp(&w->p->port[i], &port, sizeof port)) return i;
    if (w->p->ports == MOST_PORTS) return out_of_room(w, "tensors", MOST_PORTS);
    w->p->port[w->p->ports] = port;
    return w->p->ports++;
}

static int add_step(struct writer *w, struct step step)
{
    if (w->p->steps == MOST_STEPS) return out_of_room(w, "steps", MOST_STEPS);
    w->p->step[w->p->steps] = step;
    return w->p->steps++;
}

/* Rows programs tell rows from tiles only; with one column, everything is a tile. */
static enum step_class class_of(const struct program *p, const int64_t *stride)
{
    bool rows = false;
    for (int d = 0; d + 1 < p->rank; d++) rows = rows || stride[d];
    if (p->kind == PROGRAM_ROWS) return stride[p->rank - 1] || p->dim[p->rank - 1] == 1 ? CLASS_TILE : CLASS_ROW;
    return !stride[p->rank - 1] ? CLASS_ROW : rows ? CLASS_TILE : CLASS_COL;
}

static bool is_half(const struct writer *w, const struct type *t)
{
    enum pair_kind pair = w->p->pair;
    return (pair == PAIR_GLU_INTERLEAVED || pair == PAIR_GLU_STACKED) && type_columns(t) * 2 == w->p->dim[2];
}

/* Loads and row values are the same for both halves of a gated tile unless they vary with columns. */
static int find_step(const struct writer *w, enum step_kind kind, int port, bool half)
{
    for (int i = 0; i < w->p->steps; i++) {
        const struct step *s = &w->p->step[i];
        if (s->kind == kind && s->port == port && (s->half == half || s->cls == CLASS_ROW)) return i;
    }
    return -1;
}

static struct port port_new(enum port_kind kind, int buffer, int64_t offset, coda_dtype dtype, int value)
{
    struct port port;
    memset(&port, 0, sizeof port); /* padding too: add_port compares bytes */
    port.kind = kind;
    port.buffer = buffer;
    port.offset = offset;
    port.dtype = dtype;
    port.index = -1;
    port.value = value;
    return port;
}

static int load(struct writer *w, int value, const struct type *t, const struct type *as)
{
    struct view v;
    int64_t stride[CODA_MAX_RANK];
    if (!view_of(w->gr->g, value, &v) || !group_strides(w->q, t, v.stride, as, stride)) {
        w->status = fail(CODA_E_UNSUPPORTED, "plan: operand %%%d has no strides over its program's domain", value);
        return 0;
    }
    struct port port = port_new(PORT_LOAD, buffer_of(w->gr, v.base), v.offset, t->dtype, value);
    memcpy(port.stride, stride, sizeof port.stride);
    w->gr->site[v.base].need = true;
    int index = add_port(w, port);
    struct step s = {.kind = STEP_LOAD, .cls = class_of(w->p, stride), .port = index, .value = value};
    s.half = s.cls != CLASS_ROW && is_half(w, as);
    int found = find_step(w, STEP_LOAD, index, s.half);
    return found >= 0 ? found : add_step(w, s);
}

static int partial(struct writer *w, int value)
{
    const struct node *n = &w->gr->g->node[value];
    struct port port = port_new(PORT_PARTIAL_LOAD, state_buffer(w->gr, value), 0, CODA_F32, value);
    port.reduce = n->prim;
    int index = add_port(w, port), found = find_step(w, STEP_PARTIAL, index, false);
    return found >= 0 ? found : add_step(w, (struct step){.kind = STEP_PARTIAL, .cls = CLASS_ROW, .port = index, .value = value});
}

static enum step_class join_classes(const struct program *p, const struct step *s)
{
    enum step_class c = p->step[s->in[0]].cls;
    for (int i = 1; i < s->nin; i++)
        if (p->step[s->in[i]].cls != c) return CLASS_TILE;
    return c;
}

static int map(struct writer *w, const struct node *n, int value, const int *in)
{
    struct step s = {.kind = STEP_MAP, .prim = n->prim, .nin = n->nin, .port = -1, .value = value};
    for (int i = 0; i < n->nin; i++) {
        s.in[i] = in[i];
        s.half = s.half || w->p->step[in[i]].half;
    }
    memcpy(s.param, n->attr.f, sizeof s.param);
    s.cls = join_classes(w->p, &s);
    return add_step(w, s);
}

static int inline_map(struct writer *w, int value);

/* A statistic that can be read row by row: in pieces, or a map of such. */
static bool is_row_statistic(const struct writer *w, int value)
{
    const struct site *s = &w->gr->site[value];
    return (s->partial || s->role == ROLE_INLINE) && group_rows_match(w->q, &w->gr->g->node[value].type);
}

static int lane(struct writer *w, struct source s)
{
    for (int i = 0; i < w->p->steps; i++) {
        const struct step *old = &w->p->step[i];
        if (old->kind == STEP_LANE && old->lane == s.lane && old->in[0] == w->step_of[s.value]) return i;
    }
    struct step step = {.kind = STEP_LANE, .cls = CLASS_TILE, .half = true, .nin = 1, .lane = s.lane, .port = -1, .value = -1};
    step.in[0] = w->step_of[s.value];
    return add_step(w, step);
}

/* The step that holds operand i of node n. */
static int operand(struct writer *w, const struct node *n, int i)
{
    const graph *g = w->gr->g;
    struct type t = group_operand_type(g, n, i), as = n->type;
    if (n->op == OP_REDUCE && as.rank) as.dim[as.rank - 1] = type_columns(&g->node[n->in[0]].type);
    struct source s = group_source(w->gr, w->q, n->in[i]);
    if (s.kind == SOURCE_MEMBER && w->step_of[s.value] >= 0) return w->step_of[s.value];
    if (s.kind == SOURCE_LANE) return lane(w, s);
    const struct type *whole = &g->node[n->in[i]].type;
    if (type_columns(whole) == 1 && is_row_statistic(w, n->in[i]) && whole->rank == as.rank)
        return w->gr->site[n->in[i]].partial ? partial(w, n->in[i]) : inline_map(w, n->in[i]);
    return load(w, n->in[i], &t, &as);
}

static int inline_map(struct writer *w, int value)
{
    const struct node *n = &w->gr->g->node[value];
    int in[PRIM_MAX_INPUTS] = {0};
    if (w->step_of[value] >= 0) return w->step_of[value];
    for (int i = 0; i < n->nin; i++) in[i] = operand(w, n, i);
    return w->step_of[value] = map(w, n, value, in);
}

/* ---- Members ---- */

static int reduce(struct writer *w, const struct node *n, int value)
{
    struct step s = {.kind = STEP_REDUCE, .cls = CLASS_ROW, .prim = n->prim, .port = -1, .value = value};
    s.in[0] = operand(w, n, 0);
    s.in[1] = n->nin > 1 ? operand(w, n, 1) : -1;
    s.nin = n->nin;
    s.half = w->p->step[s.in[0]].half;
    if (w->gr->site[value].partial) {
        struct port port = port_new(PORT_PARTIAL_STORE, state_buffer(w->gr, value), 0, CODA_F32, value);
        port.reduce = n->prim;
        s.port = add_port(w, port);
    }
    return add_step(w, s);
}

static int rope(struct writer *w, const struct node *n, int value)
{
    struct step s = {.kind = STEP_ROPE, .cls = CLASS_TILE, .nin = n->nin, .port = -1, .value = value};
    s.in[0] = operand(w, n, 0);
    s.in[1] = n->nin > 1 && n->in[1] >= 0 ? operand(w, n, 1) : -1;
    s.nin = s.in[1] >= 0 ? 2 : 1;
    return add_step(w, s);
}

static int gather(struct writer *w, const struct node *n, int value)
{
    const struct type *table = &w->gr->g->node[n->in[0]].type;
    struct view v;
    int id = operand(w, n, 1), last = w->p->rank - 1;
    if (!view_of(w->gr->g, n->in[0], &v)) return 0;
    struct port port = port_new(PORT_GATHER, buffer_of(w->gr, v.base), v.offset, table->dtype, n->in[0]);
    w->gr->site[v.base].need = true;
    port.index = id;
    port.table_rows = table->dim[0];
    port.table_stride = v.stride[0];
    port.stride[last] = v.stride[1];
    return add_step(w, (struct step){.kind = STEP_LOAD, .cls = CLASS_TILE, .port = add_port(w, port), .value = value});
}

static int member(struct writer *w, int value)
{
    const struct node *n = &w->gr->g->node[value];
    int in[PRIM_MAX_INPUTS] = {0};
    switch (n->op) {
    case OP_MATMUL: return add_step(w, (struct step){.kind = STEP_ACC, .cls = CLASS_TILE, .port = -1, .value = value});
    case OP_REDUCE: return reduce(w, n, value);
    case OP_ROPE: return rope(w, n, value);
    case OP_EMBEDDING: return gather(w, n, value);
    case OP_CAST: return operand(w, n, 0);
    default:
        for (int i = 0; i < n->nin; i++) in[i] = operand(w, n, i);
        return map(w, n, value, in);
    }
}

/* ---- Stores ---- */

static void store(struct writer *w, int value, int buffer, int64_t offset, const int64_t *stride)
{
    const struct type *t = &w->gr->g->node[value].type;
    struct port port = port_new(PORT_STORE, buffer, offset, t->dtype, value);
    int64_t out[CODA_MAX_RANK];
    if (!group_strides(w->q, t, stride, t, out)) {
        w->status = fail(CODA_E_UNSUPPORTED, "plan: %%%d cannot be stored by its program's domain", value);
        return;
    }
    memcpy(port.stride, out, sizeof port.stride);
    struct step s = {.kind = STEP_STORE, .half = w->p->step[w->step_of[value]].half, .nin = 1, .value = value};
    bool one_a_row = w->p->kind == PROGRAM_ROWS && type_columns(t) == 1 && w->p->dim[w->p->rank - 1] != 1;
    s.cls = one_a_row ? CLASS_ROW : CLASS_TILE;
    s.in[0] = w->step_of[value];
    s.port = add_port(w, port);
    add_step(w, s);
}

static void store_to_concats(struct writer *w, int value)
{
    const graph *g = w->gr->g;
    for (int c = value + 1; c < g->nodes; c++) {
        const struct node *n = &g->node[c];
        for (int i = 0; n->op == OP_CONCAT && i < n->nin; i++) {
            int64_t stride[CODA_MAX_RANK];
            if (n->in[i] != value) continue;
            dense_strides(&n->type, stride);
            store(w, value, buffer_of(w->gr, c), concat_start(g, n, i) * stride[n->attr.i[0]], stride);
        }
    }
}

static void store_everywhere(struct writer *w, int value)
{
    const graph *g = w->gr->g;
    int own = own_output(g, value);
    int64_t dense[CODA_MAX_RANK];
    dense_strides(&g->node[value].type, dense);
    if (w->gr->site[value].need && own < 0) store(w, value, buffer_of(w->gr, value), 0, dense);
    for (int i = 0; i < g->outputs; i++)
        if (g->output[i].value == value) store(w, value, output_buffer(w->gr, i), 0, g->output[i].stride);
    store_to_concats(w, value);
}

static bool is_wanted_whole(const struct grouper *gr, int value)
{
    const graph *g = gr->g;
    if (gr->site[value].need) return true;
    for (int i = 0; i < g->outputs; i++)
        if (g->output[i].value == value) return true;
    for (int c = value + 1; c < g->nodes; c++)
        for (int i = 0; g->node[c].op == OP_CONCAT && i < g->node[c].nin; i++)
            if (g->node[c].in[i] == value) return true;
    return false;
}

/* ---- Programs ---- */

static void matrix_operand(struct grouper *gr, struct operand *o)
{
    struct view v;
    if (!view_of(gr->g, o->value, &v)) return;
    gr->site[v.base].need = true;
    o->buffer = buffer_of(gr, v.base);
}

static void heads(struct grouper *gr, int value, int64_t head_dim, struct attention_view *out)
{
    const struct type *t = &gr->g->node[value].type;
    struct view v = {0};
    view_of(gr->g, value, &v);
    gr->site[v.base].need = true;
    out->buffer = buffer_of(gr, v.base);
    out->offset = v.offset;
    out->dtype = t->dtype;
    out->value = value;
    out->time = v.stride[t->rank - 2];
    out->batch = t->rank == 3 ? v.stride[0] : 0;
    out->head = head_dim;
}

static void write_attention(struct writer *w)
{
    const graph *g = w->gr->g;
    const struct node *n = &g->node[w->q->p.root];
    struct attention_spec *a = &w->p->attention;
    const struct type *q = &n->type, *k = &g->node[n->in[1]].type;
    a->heads = MAX(n->attr.i[0], 1);
    a->kv_heads = n->attr.i[1] ? n->attr.i[1] : a->heads;
    a->head_dim = type_columns(q) / a->heads;
    a->batch = q->rank == 3 ? q->dim[0] : 1;
    a->tq = q->dim[q->rank - 2];
    a->tk = k->dim[k->rank - 2];
    a->window = n->attr.i[2];
    a->causal = n->attr.i[3] != 0;
    a->scale = n->attr.f[0];
    a->lengths = -1;
    heads(w->gr, n->in[0], a->head_dim, &a->q);
    heads(w->gr, n->in[1], a->head_dim, &a->k);
    heads(w->gr, n->in[2], a->head_dim, &a->v);
    if (n->nin > 3 && n->in[3] >= 0) {
        struct view v = {0};
        view_of(g, n->in[3], &v);
        w->gr->site[v.base].need = true;
        a->lengths = buffer_of(w->gr, v.base);
        a->lengths_offset = v.offset;
        a->lengths_stride = v.stride[0];
    }
}

/* Attention has one store: its own buffer, or the output. */
static void place_attention(struct writer *w)
{
    const graph *g = w->gr->g;
    struct attention_spec *a = &w->p->attention;
    const struct type *t = &g->node[w->q->p.root].type;
    int64_t dense[CODA_MAX_RANK];
    dense_strides(t, dense);
    a->o.buffer = buffer_of(w->gr, w->q->p.root);
    a->o.dtype = t->dtype;
    a->o.time = dense[t->rank - 2];
    a->o.batch = t->rank == 3 ? dense[0] : 0;
    a->o.head = a->head_dim;
    a->o.value = w->q->p.root;
    a->sm90 = attention_fits_sm90(a, &w->gr->opt->machine);
}

static bool open_writer(struct writer *w, struct grouper *gr, struct group *q)
{
    struct arena *arena = &gr->plan->arena;
    *w = (struct writer){.gr = gr, .q = q, .p = &q->p};
    w->step_of = ARENA_NEW(arena, int, gr->g->nodes + 1);
    q->p.step = ARENA_NEW(arena, struct step, MOST_STEPS);
    q->p.port = ARENA_NEW(arena, struct port, MOST_PORTS);
    if (arena->failed) return false;
    for (int i = 0; i < gr->g->nodes; i++) w->step_of[i] = -1;
    return true;
}

static void write_members(struct writer *w)
{
    if (w->p->kind == PROGRAM_ATTENTION) {
        write_attention(w);
        return;
    }
    if (w->p->kind == PROGRAM_GEMM) {
        matrix_operand(w->gr, &w->p->a);
        matrix_operand(w->gr, &w->p->b);
    }
    for (int m = w->q->first; m >= 0 && !w->status; m = w->gr->site[m].next) w->step_of[m] = member(w, m);
}

/* A program for a statistic that is in pieces but needed whole. */
static void finish_statistic(struct grouper *gr, struct writer *w, int value)
{
    struct group *q = &gr->group[gr->groups++];
    const struct node *n = &gr->g->node[value];
    *q = (struct group){.first = -1, .last = -1, .paired = -1, .domain = n->type};
    q->p.kind = PROGRAM_ROWS;
    q->p.root = value;
    q->p.scratch = -1;
    q->p.prepare = gr->site[value].is_const;
    q->p.rank = n->type.rank;
    memcpy(q->p.dim, n->type.dim, sizeof q->p.dim);
    if (!open_writer(w, gr, q)) return;
    gr->site[value].finished = true;
    w->step_of[value] = gr->site[value].partial ? partial(w, value) : inline_map(w, value);
}

static void write_stores(struct writer *w)
{
    struct grouper *gr = w->gr;
    if (w->p->kind == PROGRAM_ATTENTION) place_attention(w);
    else if (w->q->first < 0) store_everywhere(w, w->q->p.root);
    for (int m = w->q->first; m >= 0 && w->p->kind != PROGRAM_ATTENTION && !w->status; m = gr->site[m].next)
        if (!gr->site[m].partial) store_everywhere(w, m);
}

/* Tiles decide how many states a row has. */
static void size_states(struct grouper *gr)
{
    for (int i = 0; i < gr->groups; i++) {
        struct program *p = &gr->group[i].p;
        if (p->kind != PROGRAM_GEMM) continue;
        for (int j = 0; j < p->ports; j++) {
            struct port *port = &p->port[j];
            if (port->kind != PORT_PARTIAL_STORE) continue;
            gr->site[port->value].blocks = (int)CEIL_DIV(p->dim[2], p->tile.bn);
            gr->plan->buffer[port->buffer].bytes =
                p->dim[0] * p->dim[1] * gr->site[port->value].blocks * port->reduce->state * 4;
        }
    }
    for (int i = 0; i < gr->groups; i++)
        for (int j = 0; j < gr->group[i].p.ports; j++) {
            struct port *port = &gr->group[i].p.port[j];
            if (port->kind == PORT_PARTIAL_STORE || port->kind == PORT_PARTIAL_LOAD)
                port->blocks = gr->site[port->value].blocks;
        }
}

static coda_status write_programs(struct grouper *gr, struct writer *w, int most)
{
    for (int i = 0; i < gr->groups; i++) {
        if (!open_writer(&w[i], gr, &gr->group[i])) return CODA_E_MEMORY;
        write_members(&w[i]);
        if (w[i].status) return w[i].status;
    }
    for (bool again = true; again;) {
        again = false;
        for (int v = 0; v < gr->g->nodes && gr->groups < most; v++) {
            const struct site *s = &gr->site[v];
            if (!(s->partial || s->role == ROLE_INLINE) || s->finished || !is_wanted_whole(gr, v)) continue;
            finish_statistic(gr, &w[gr->groups], v);
            again = true;
        }
    }
    for (int i = 0; i < gr->groups; i++) {
        if (gr->plan->arena.failed) return CODA_E_MEMORY;
        write_stores(&w[i]);
        if (w[i].status) return w[i].status;
        if (w[i].p->kind == PROGRAM_GEMM) w[i].p->tile = tile_choose(w[i].p, &gr->opt->machine);
    }
    return CODA_OK;
}

coda_status build_programs(struct grouper *gr)
{
    struct plan *plan = gr->plan;
    int n = gr->g->nodes, most = 2 * n + 1;
    struct writer *w = ARENA_NEW(&plan->arena, struct writer, most);
    struct group *group = ARENA_NEW(&plan->arena, struct group, most);
    plan->buffer = ARENA_NEW(&plan->arena, struct buffer, 3 * n + gr->g->outputs + 1);
    plan->program = ARENA_NEW(&plan->arena, struct program, most);
    if (plan->arena.failed) return fail(CODA_E_MEMORY, "out of memory for a plan of %d nodes", n);
    memcpy(group, gr->group, sizeof *group * (size_t)gr->groups);
    gr->group = group;
    coda_status status = write_programs(gr, w, most);
    if (plan->arena.failed) return fail(CODA_E_MEMORY, "out of memory for a plan of %d nodes", n);
    if (status) return status;
    size_states(gr);
    for (int i = 0; i < gr->groups; i++) plan->program[plan->programs++] = gr->group[i].p;
    return CODA_OK;
}
