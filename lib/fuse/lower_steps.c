/*
 * lower_steps.c -- the steps of one program: each member node in SSA form. What they read is written by
 * lower_operands.c, ahead of them.
 */
#include "writer.h"

/* Is the value reduced here, and read from memory by a later kernel? */
static bool is_reduced_and_stored(const struct writer *w, int value)
{
    const struct uses *u = &w->gr->uses;
    bool reduced = false, stored = false;
    for (int i = u->at[value]; i < u->at[value + 1]; i++) {
        bool here = group_holds(w->gr, w->q, u->use[i].node);
        reduced = reduced || (here && w->gr->g->node[u->use[i].node].op == OP_REDUCE);
        stored = stored || !here;
    }
    return reduced && stored;
}

/* A statistic of a 16-bit tensor describes the tensor that its readers will see, not the fp32 value it
 * was rounded from: else x - mean(x) and x / rms(x) keep the difference, divided by a small deviation. */
static int as_stored(struct writer *w, int value, int step)
{
    coda_dtype t = w->gr->g->node[value].type.dtype;
    if (!dtype_is_half(t) || w->p->step[step].kind == STEP_LOAD || !is_reduced_and_stored(w, value))
        return step;
    struct step s = w->p->step[step];
    s.kind = STEP_MAP;
    s.prim = map_to(t);
    s.nin = 1;
    s.in[0] = step;
    s.port = -1;
    return add_step(w, s);
}

/* What ids, keys and positions are, whatever the columns: with one column, operands are tiles. */
static int as_row(struct writer *w, int step)
{
    struct step *s = &w->p->step[step];
    if (s->cls == CLASS_ROW || !domain_is_column(w->q)) return step;
    for (int i = 0; s->kind == STEP_MAP && i < s->nin; i++)
        if (s->in[i] != IMMEDIATE) as_row(w, s->in[i]);
    s->cls = CLASS_ROW;
    return step;
}

static int reduce(struct writer *w, const struct node *n, int value)
{
    struct step s = {.kind = STEP_REDUCE, .cls = CLASS_ROW, .prim = n->prim, .port = -1, .value = value};
    bool partial = w->gr->site[value].partial;
    if (w->p->kind == PROGRAM_GEMM && !partial) s.cls = CLASS_SEGMENT;
    int first = partial ? group_state(w->gr, value) : value;
    if (first != value) return step_of(w, first);
    if (n->attr.reduce.columns) s.axis = REDUCE_COLUMNS, s.cls = CLASS_TILE;
    s.in[READS_X] = write_operand(w, n, REDUCE_X, domain_walked(w->gr->g, n));
    s.in[READS_KEY] =
        n->nin > 1 ? as_row(w, write_operand(w, n, REDUCE_KEY, domain_walked(w->gr->g, n))) : -1;
    s.nin = n->nin;
    s.half = w->p->step[s.in[READS_X]].half;
    if (partial) {
        struct tensor_use port =
            port_new(USE_PARTIAL_STORE, accumulator_buffer(w->gr, value), 0, CODA_F32, value);
        port.reduce = n->prim;
        port.axis = s.axis;
        s.port = add_port(w, port);
    }
    return add_step(w, s);
}

/* A 16-bit element counts as its readers would see it, so that equal ones are those that look equal. */
static int as_seen(struct writer *w, const struct node *n, int step)
{
    coda_dtype t = w->gr->g->node[n->in[TOP_K_X]].type.dtype;
    const struct prim *rounds = dtype_is_half(t) ? map_to(t) : NULL;
    struct step s = w->p->step[step];
    if (!rounds || s.kind == STEP_LOAD || s.prim == rounds) return step;
    s.kind = STEP_MAP;
    s.prim = rounds;
    s.nin = 1;
    s.in[READS_X] = step;
    s.port = -1;
    return add_step(w, s);
}

void write_best(struct writer *w, const struct best *best)
{
    const struct node *n = &w->gr->g->node[best->root];
    int buffer = accumulator_buffer(w->gr, best->root);
    struct tensor_use port = port_new(USE_PARTIAL_STORE, buffer, 0, CODA_F32, best->root);
    struct step s = {.kind = STEP_REDUCE, .cls = CLASS_ROW, .nin = 1, .value = best->root};
    w->range = 0;
    s.prim = port.reduce = best->reduce;
    s.in[READS_X] = as_seen(w, n, write_operand(w, n, TOP_K_X, &w->gr->g->node[n->in[TOP_K_X]].type));
    s.in[READS_KEY] = -1;
    s.half = w->p->step[s.in[READS_X]].half;
    s.port = add_port(w, port);
    add_step(w, s);
}

/* A vector that steps use as a whole. */
static int vector(struct writer *w, enum use_role role, int value)
{
    const struct view v = w->gr->view[value];
    struct tensor_use port = port_new(role, buffer_of(w->gr, v.base), v.offset, CODA_F32, value);
    w->gr->site[v.base].need = true;
    port.version = w->gr->site[v.base].version;
    port.table_rows = w->gr->g->node[value].type.dim[0];
    port.table_stride = v.stride[0];
    return add_port(w, port);
}

/* A row's position: a number, or one on each axis. */
static void position(struct writer *w, const struct node *n, struct step *s)
{
    const struct type *as = domain_walked(w->gr->g, n);
    s->in[READS_POSITION] = -1;
    s->nin = 1;
    if (n->in[ROPE_POSITIONS] < 0) return;
    if (!node_has_sections(n)) {
        s->in[s->nin++] = as_row(w, write_operand(w, n, ROPE_POSITIONS, as));
        return;
    }
    const struct view *v = &w->gr->view[n->in[ROPE_POSITIONS]];
    const struct type *t = &w->gr->g->node[n->in[ROPE_POSITIONS]].type,
                      each = domain_operand_type(w->gr->g, n, ROPE_POSITIONS);
    for (int axis = 0; axis < type_columns(t); axis++)
        s->in[s->nin++] = load_from(w, n->in[ROPE_POSITIONS], axis * v->stride[t->rank - 1], &each, as);
}

static int pair(struct writer *w, const struct node *n, int value)
{
    struct step s = {.kind = STEP_PAIR, .cls = CLASS_TILE, .port = -1, .value = value};
    s.in[READS_X] = write_operand(w, n, ROPE_X, domain_walked(w->gr->g, n));
    position(w, n, &s);
    if (n->in[ROPE_FREQUENCIES] >= 0) s.port = vector(w, USE_FREQUENCIES, n->in[ROPE_FREQUENCIES]);
    return add_step(w, s);
}

static int gather(struct writer *w, const struct node *n, int value)
{
    const struct type *table = &w->gr->g->node[n->in[EMBEDDING_TABLE]].type;
    struct view v = w->gr->view[n->in[EMBEDDING_TABLE]];
    int id = as_row(w, write_operand(w, n, EMBEDDING_IDS, domain_walked(w->gr->g, n))), last = w->p->rank - 1;
    if (v.base < 0) return 0;
    const struct node *base = &w->gr->g->node[v.base];
    struct packed_view packed = {0};
    if (base->op == OP_UNPACK) view_packed(base, &v.offset, v.stride, table->dim, table->rank, &packed);
    struct tensor_use port =
        port_new(USE_GATHER, buffer_of(w->gr, v.base), v.offset, table->dtype, n->in[EMBEDDING_TABLE]);
    w->gr->site[v.base].need = true;
    port.packing = (struct packing){packed.format, packed.columns};
    port.version = w->gr->site[v.base].version;
    port.index = id;
    port.table_rows = table->dim[0];
    port.table_stride = v.stride[0];
    port.stride[last] = v.stride[1];
    return add_step(
        w, (struct step){.kind = STEP_LOAD, .cls = CLASS_TILE, .port = add_port(w, port), .value = value});
}

/* The value that is to be written, and where: lower.c stores it. */
static int next_version(struct writer *w, const struct node *n, int value)
{
    const struct type *walked = domain_walked(w->gr->g, n);
    struct spot p;
    bool some = n->op == OP_APPEND && spot_of(w->gr, w->q, n->in[VERSION_VALUE], &p);
    int step = some ? step_of(w, p.member) : write_operand(w, n, VERSION_VALUE, walked);
    if (n->op == OP_APPEND) w->gr->site[value].slot = as_row(w, write_operand(w, n, APPEND_SLOTS, walked));
    if (n->op == OP_APPEND && n->in[APPEND_SCALE] >= 0)
        w->gr->site[value].scale = 1 + vector(w, USE_SCALES, n->in[APPEND_SCALE]);
    return step;
}

static int compute(struct writer *w, int value)
{
    const struct node *n = &w->gr->g->node[value];
    if (short_has(w->q, value))
        return value == w->p->root ? write_short_fold(w, value) : short_value(w, value, 0);
    if (op_combines_pairs(n->op)) return pair(w, n, value);
    switch (n->op) {
    case OP_MATMUL:
    case OP_SCALED_MATMUL:
        return add_step(w, (struct step){.kind = STEP_ACC, .cls = CLASS_TILE, .port = -1, .value = value});
    case OP_REDUCE: return reduce(w, n, value);
    case OP_EMBEDDING: return gather(w, n, value);
    case OP_CONV1D: return write_conv1d_step(w, value);
    case OP_APPEND:
    case OP_ASSIGN: return next_version(w, n, value);
    case OP_SLICE: return write_operand(w, n, 0, domain_walked(w->gr->g, n));
    default: return write_map(w, value, &n->type);
    }
}

int write_member(struct writer *w, int value)
{
    w->range = w->gr->site[value].range;
    return as_stored(w, value, compute(w, value));
}
