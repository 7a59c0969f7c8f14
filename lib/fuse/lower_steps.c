/*
 * lower_steps.c -- the steps of one program: each member node in SSA form, its operands as loads, lanes or
 * row statistics finished on the spot.
 */
#include "fuse.h"
#include "plan_sizes.h"

#include <string.h>

/* ---- Ports and steps ---- */

/* Room for one more element: the array, or a copy of twice the size; NULL with the status set. */
static void *room(struct writer *w, void *array, int count, int *capacity, size_t size)
{
    if (count < *capacity) return array;
    int wider = MAX(8, 2 * *capacity);
    void *copy = arena_alloc(&w->gr->plan->arena, size * (size_t)wider);
    if (!copy) {
        w->status = fail(CODA_E_MEMORY, "out of memory for a program of %d steps", w->p->steps);
        return NULL;
    }
    if (count) memcpy(copy, array, size * (size_t)count);
    *capacity = wider;
    return copy;
}

/* Numbers may be equal by chance: all else is compared first. */
static bool same_port(const struct tensor_use *a, const struct tensor_use *b)
{
    if (tensor_use_differs(a, b, FIELD_ALL & ~FIELD_NUMBER)) return false;
    return extents_equal(a->offset, b->offset) && extents_all_equal(a->stride, b->stride, CODA_MAX_RANK) &&
           extents_equal(a->table_rows, b->table_rows) && extents_equal(a->table_stride, b->table_stride) &&
           extents_equal(a->page, b->page) && extents_equal(a->page_stride, b->page_stride) &&
           extents_equal(a->head_dim, b->head_dim) && extents_equal(a->head_stride, b->head_stride);
}

int add_port(struct writer *w, struct tensor_use port)
{
    for (int i = 0; i < w->p->ports; i++)
        if (same_port(&w->p->port[i], &port)) return i;
    struct tensor_use *array = room(w, w->p->port, w->p->ports, &w->q->port_capacity, sizeof port);
    if (!array) {
        if (!w->p->port) w->p->port = &w->q->no_port;
        return 0;
    }
    w->p->port = array;
    w->p->port[w->p->ports] = port;
    return w->p->ports++;
}

int add_step(struct writer *w, struct step step)
{
    struct step *array = room(w, w->p->step, w->p->steps, &w->q->step_capacity, sizeof step);
    if (!array) {
        if (!w->p->step) w->p->step = &w->q->no_step;
        return 0;
    }
    w->p->step = array;
    step.range = step.cls == CLASS_ROW ? 0 : w->range;
    w->p->step[w->p->steps] = step;
    return w->p->steps++;
}

int step_of(const struct writer *w, int value)
{
    const struct site *s = &w->gr->site[value];
    if (w->q->first < 0 && value == w->p->root) return w->q->root_step;
    if (group_holds(w->gr, w->q, value)) return s->step;
    if (s->row_in == w->q->index) return s->row_step;
    return s->again_in == w->q->index ? s->again : -1;
}

/* A tile has rows of one batch. Of samples it may have several: of short ones too many for a copy of the
 * columns' values each. A batch of one row has nothing that its rows share. */
static bool changes_with_rows(const struct group *q, const int64_t *stride)
{
    const struct program *p = &q->p;
    if (!extents_equal(stride[1], 0)) return true;
    if (extents_equal(stride[0], 0)) return false;
    return p->sample ? !extent_reaches(p->sample, LEAST_SAMPLE) : !extent_reaches(p->dim[1], 2);
}

/* The class of what is read with these strides. A rows program has no column class, and with one column no
 * row class either. */
static enum step_class class_of(const struct group *q, const int64_t *stride)
{
    const struct program *p = &q->p;
    if (p->kind == PROGRAM_ROWS)
        return domain_is_column(q) || !extents_equal(stride[p->rank - 1], 0) ? CLASS_TILE : CLASS_ROW;
    bool same = extents_equal(stride[2], 0) && (!p->segment || extents_equal(stride[3], 0));
    return same ? CLASS_ROW : changes_with_rows(q, stride) ? CLASS_TILE : CLASS_COL;
}

static bool is_half(const struct writer *w, const struct type *t)
{
    return program_is_gated(w->p) && extents_equal(type_columns(t) * 2, w->p->dim[2]);
}

/* Loads and row values are the same for both halves of a gated tile unless they vary with columns. */
static int find_step(const struct writer *w, enum step_kind kind, int port, bool half)
{
    for (int i = 0; i < w->p->steps; i++) {
        const struct step *s = &w->p->step[i];
        bool same = s->half == half && s->range == w->range;
        if (s->kind == kind && s->port == port && (same || s->cls == CLASS_ROW)) return i;
    }
    return -1;
}

struct tensor_use port_new(enum use_role role, int buffer, int64_t offset, coda_dtype dtype, int value)
{
    struct tensor_use port;
    memset(&port, 0, sizeof port); /* padding too: add_port compares bytes */
    port.role = role;
    port.buffer = buffer;
    port.offset = offset;
    port.dtype = dtype;
    port.index = -1;
    port.value = value;
    return port;
}

/* The elements from `first` on of a value, as if its type were t. */
static int load_from(struct writer *w, int value, int64_t first, const struct type *t, const struct type *as)
{
    struct view v = w->gr->view[value];
    struct type seen = *t;
    int64_t stride[CODA_MAX_RANK];
    bool lies = v.base >= 0 && level_strides(w, &seen, v.stride);
    if (!lies || !domain_strides(w->q, &seen, v.stride, as, stride)) {
        w->status =
            fail(CODA_E_UNSUPPORTED, "plan: operand %%%d has no strides over its program's domain", value);
        return 0;
    }
    struct tensor_use port = port_new(USE_LOAD, buffer_of(w->gr, v.base), v.offset + first, t->dtype, value);
    memcpy(port.stride, stride, sizeof port.stride);
    port.version = w->gr->site[v.base].version;
    domain_use_samples(w->q, &seen, v.stride, as, stride);
    w->gr->site[v.base].need = true;
    int index = add_port(w, port);
    struct step s = {.kind = STEP_LOAD, .cls = class_of(w->q, stride), .port = index, .value = value};
    s.half = s.cls != CLASS_ROW && is_half(w, as);
    int found = find_step(w, STEP_LOAD, index, s.half);
    return found >= 0 ? found : add_step(w, s);
}

static int load(struct writer *w, int value, const struct type *t, const struct type *as)
{
    return load_from(w, value, 0, t, as);
}

/* Of numbers alone: one value for all rows. */
static enum step_class class_of_numbers(const struct writer *w)
{
    return domain_is_column(w->q) ? CLASS_TILE : CLASS_ROW;
}

static int scalar(struct writer *w, int value)
{
    struct tensor_use port =
        port_new(USE_SCALAR, buffer_of(w->gr, value), 0, w->gr->g->node[value].type.dtype, value);
    struct step s = {.kind = STEP_SCALAR, .cls = class_of_numbers(w), .value = value};
    s.port = add_port(w, port);
    int found = find_step(w, STEP_SCALAR, s.port, false);
    return found >= 0 ? found : add_step(w, s);
}

/* The program reads parts of what a group folds over columns. Programs are written in their order, and are
 * enlisted in it. */
static void enlist_finisher(struct writer *w, struct group *left_by)
{
    if (w->q->finishes_columns) return;
    int *link = &left_by->finisher;
    while (*link >= 0) link = &w->gr->group[*link]->next_finisher;
    *link = w->q->index;
    w->q->finishes_columns = true;
}

static int partial(struct writer *w, int value)
{
    const struct node *n = &w->gr->g->node[value];
    struct tensor_use port =
        port_new(USE_PARTIAL_LOAD, accumulator_buffer(w->gr, value), 0, CODA_F32, group_state(w->gr, value));
    port.reduce = n->prim;
    port.axis = n->attr.reduce.columns ? REDUCE_COLUMNS : REDUCE_ROWS;
    if (n->attr.reduce.columns) enlist_finisher(w, w->gr->group[w->gr->site[value].group]);
    int index = add_port(w, port), found = find_step(w, STEP_PARTIAL, index, false);
    struct step s = {.kind = STEP_PARTIAL, .axis = port.axis, .port = index, .value = value};
    s.cls = s.axis == REDUCE_COLUMNS ? CLASS_TILE : CLASS_ROW;
    return found >= 0 ? found : add_step(w, s);
}

static enum step_class join_classes(const struct writer *w, const struct step *s)
{
    const struct program *p = w->p;
    int steps = 0;
    enum step_class c = class_of_numbers(w);
    for (int i = 0; i < s->nin; i++) {
        if (s->in[i] == IMMEDIATE || p->step[s->in[i]].kind == STEP_SCALAR) continue;
        if (steps++ && p->step[s->in[i]].cls != c) return CLASS_TILE;
        c = p->step[s->in[i]].cls;
    }
    return c;
}

static int operand(struct writer *w, const struct node *n, int i, const struct type *as);

static int map(struct writer *w, const struct node *n, int value, const struct type *as)
{
    struct step s = {.kind = STEP_MAP, .prim = n->prim, .nin = n->nin, .port = -1, .value = value};
    for (int i = 0; i < n->nin; i++) {
        bool immediate = group_number(w->gr, n->in[i], &s.immediate[i]);
        s.in[i] = immediate ? IMMEDIATE : operand(w, n, i, as);
        s.half = s.half || (!immediate && w->p->step[s.in[i]].half);
    }
    memcpy(s.param, n->attr.map.param, sizeof s.param);
    s.cls = join_classes(w, &s);
    return add_step(w, s);
}

/* A column's number. */
static int column(struct writer *w, int value)
{
    struct step s = {.kind = STEP_COLUMN, .cls = CLASS_COL, .port = -1, .value = value};
    if (w->p->kind == PROGRAM_ROWS) s.cls = CLASS_TILE;
    return add_step(w, s);
}

/* A number as a step, for what is no map: 1 times it. */
static int number(struct writer *w, int value)
{
    struct step s = {.kind = STEP_MAP, .prim = prim_find("scale"), .nin = 1, .in = {IMMEDIATE}, .port = -1};
    s.cls = class_of_numbers(w);
    group_number(w->gr, value, &s.immediate[0]);
    s.param[0] = 1;
    s.value = value;
    return add_step(w, s);
}

/* The map that makes of a value what a tensor of dtype t would hold; NULL if there is none. */
static const struct prim *map_to(coda_dtype t)
{
    char name[16];
    format_line(name, sizeof name, "to_%s", dtype_name(t));
    return prim_find(name);
}

/* Do all readers take it from memory, as a store has rounded it? */
static bool is_only_multiplied(const struct grouper *gr, int value)
{
    const struct uses *u = &gr->uses;
    for (int i = u->at[value]; i < u->at[value + 1]; i++) {
        int reader = u->use[i].node;
        if (op_is_product(gr->g->node[reader].op)) continue;
        if (!op_is_view(gr->g->node[reader].op) || !is_only_multiplied(gr, reader)) return false;
    }
    return true;
}

/* Values are fp32 in registers, whatever they are cast to; but an integer is whole, and no larger than its
 * type holds, and fp8 is rounded: that is what it is for. */
static int cast(struct writer *w, const struct node *n, int value, const struct type *as)
{
    int x = operand(w, n, 0, as);
    coda_dtype to = n->type.dtype, from = w->gr->g->node[n->in[CAST_X]].type.dtype;
    bool whole = dtype_is_index(to) && from != CODA_I32;
    bool rounds = dtype_is_f8(to) && !is_only_multiplied(w->gr, value);
    if (from == to || !(whole || rounds)) return x;
    struct step s = {.kind = STEP_MAP, .cls = w->p->step[x].cls, .half = w->p->step[x].half};
    s.prim = map_to(to);
    s.nin = 1;
    s.in[0] = x;
    s.port = -1;
    s.value = value;
    return add_step(w, s);
}

static int inline_map(struct writer *w, int value, const struct type *as);

static int lane(struct writer *w, struct source s)
{
    for (int i = 0; i < w->p->steps; i++) {
        const struct step *old = &w->p->step[i];
        if (old->kind == STEP_LANE && old->lane == s.lane && old->in[0] == step_of(w, s.value)) return i;
    }
    struct step step = {.kind = STEP_LANE,
                        .cls = CLASS_TILE,
                        .half = true,
                        .nin = 1,
                        .lane = s.lane,
                        .port = -1,
                        .value = -1};
    step.in[0] = step_of(w, s.value);
    return add_step(w, step);
}

static int write_level_map(struct writer *w, int value, const struct type *as)
{
    const struct node *n = &w->gr->g->node[value];
    return n->op == OP_CAST ? cast(w, n, value, as) : map(w, n, value, as);
}

/* What `view` is of, computed again as it is seen there. */
static int write_level(struct writer *w, int view, const struct type *as)
{
    struct site *s = &w->gr->site[view];
    struct level_view level = {w->level, view};
    if (!level.outer && s->again_in == w->q->index) return s->again;
    w->level = &level;
    int step = write_level_map(w, level_of(w->gr, view), as);
    w->level = level.outer;
    if (!level.outer) s->again = step, s->again_in = w->q->index;
    return step;
}

/* An operand of such a map: nothing that the program has. */
static int level_operand(struct writer *w, int value, const struct type *as)
{
    float ignored;
    if (group_number(w->gr, value, &ignored)) return number(w, value);
    if (group_scalar(w->gr, value) >= 0) return scalar(w, group_scalar(w->gr, value));
    if (level_of(w->gr, value) >= 0) return write_level(w, value, as);
    if (w->gr->site[value].role == ROLE_INLINE) return write_level_map(w, value, as);
    return load(w, value, &w->gr->g->node[value].type, as);
}

/* The step that holds operand i of node n, for elements of type `as`. */
static int operand(struct writer *w, const struct node *n, int i, const struct type *as)
{
    if (w->level) return level_operand(w, n->in[i], as);
    struct type t = domain_operand_type(w->gr->g, n, i);
    struct source s = group_source(w->gr, w->q, n->in[i]);
    bool keys = t.rank > w->gr->g->node[n->in[i]].type.rank; /* [N] of N rows, though these have N columns */
    float ignored;
    if (group_number(w->gr, n->in[i], &ignored)) return number(w, n->in[i]);
    if (group_scalar(w->gr, n->in[i]) >= 0) return scalar(w, group_scalar(w->gr, n->in[i]));
    if (s.kind == SOURCE_MEMBER && step_of(w, s.value) >= 0) return step_of(w, s.value);
    if (s.kind == SOURCE_LANE) return lane(w, s);
    if (s.kind == SOURCE_AGAIN) return inline_map(w, s.value, as);
    int tile = w->q->flat ? group_tile(w->gr, w->q, n->in[i]) : n->in[i];
    if (tile != n->in[i] && domain_shape(w->q, &w->gr->g->node[tile].type) != SHAPE_NO) {
        t = w->gr->g->node[tile].type; /* equal elements are loaded once, whoever reads them */
        return load(w, tile, &t, &t);
    }
    int line = w->q->finishes ? line_value(w->gr->g, n->in[i]) : n->in[i];
    if (w->q->finishes && is_computed_again(w, line, as)) return write_again(w, line, as);
    if (!keys && is_computed_again(w, n->in[i], as)) return write_again(w, n->in[i], as);
    if (!keys && level_of(w->gr, n->in[i]) >= 0 && level_fits(w, n->in[i], as))
        return write_level(w, n->in[i], as);
    return load(w, n->in[i], &t, as);
}

/* A program that walks rows has what it finishes of them, and may store it besides. */
static int note_row(struct writer *w, int value, int step)
{
    struct site *s = &w->gr->site[value];
    bool row = w->p->kind == PROGRAM_ROWS && w->q->first >= 0 && w->p->step[step].cls == CLASS_ROW;
    if (row && s->row_in < 0) s->row_in = w->q->index, s->row_step = step;
    return step;
}

/* A statistic in pieces is finished, a cheap map computed again, a number written down. */
int write_again(struct writer *w, int value, const struct type *as)
{
    if (w->gr->site[value].role == ROLE_NUMBER) return number(w, value);
    return note_row(w, value, w->gr->site[value].partial ? partial(w, value) : inline_map(w, value, as));
}

static int inline_map(struct writer *w, int value, const struct type *as)
{
    struct site *s = &w->gr->site[value];
    const struct node *n = &w->gr->g->node[value];
    if (step_of(w, value) >= 0) return step_of(w, value);
    if (!s->vector) as = &n->type;
    s->again = n->op == OP_IOTA   ? column(w, value)
               : n->op == OP_CAST ? cast(w, n, value, as)
                                  : map(w, n, value, as);
    s->again_in = w->q->index;
    return s->again;
}

/* ---- Members ---- */

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
    s.in[READS_X] = operand(w, n, REDUCE_X, domain_walked(w->gr->g, n));
    s.in[READS_KEY] = n->nin > 1 ? as_row(w, operand(w, n, REDUCE_KEY, domain_walked(w->gr->g, n))) : -1;
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
    s.in[READS_X] = as_seen(w, n, operand(w, n, TOP_K_X, &w->gr->g->node[n->in[TOP_K_X]].type));
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
        s->in[s->nin++] = as_row(w, operand(w, n, ROPE_POSITIONS, as));
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
    s.in[READS_X] = operand(w, n, ROPE_X, domain_walked(w->gr->g, n));
    position(w, n, &s);
    if (n->in[ROPE_FREQUENCIES] >= 0) s.port = vector(w, USE_FREQUENCIES, n->in[ROPE_FREQUENCIES]);
    return add_step(w, s);
}

static int gather(struct writer *w, const struct node *n, int value)
{
    const struct type *table = &w->gr->g->node[n->in[EMBEDDING_TABLE]].type;
    struct view v = w->gr->view[n->in[EMBEDDING_TABLE]];
    int id = as_row(w, operand(w, n, EMBEDDING_IDS, domain_walked(w->gr->g, n))), last = w->p->rank - 1;
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
    int step = some ? step_of(w, p.member) : operand(w, n, VERSION_VALUE, walked);
    if (n->op == OP_APPEND) w->gr->site[value].slot = as_row(w, operand(w, n, APPEND_SLOTS, walked));
    if (n->op == OP_APPEND && n->in[APPEND_SCALE] >= 0)
        w->gr->site[value].scale = 1 + vector(w, USE_SCALES, n->in[APPEND_SCALE]);
    return step;
}

static int compute(struct writer *w, int value)
{
    const struct node *n = &w->gr->g->node[value];
    if (op_combines_pairs(n->op)) return pair(w, n, value);
    switch (n->op) {
    case OP_MATMUL:
    case OP_SCALED_MATMUL:
        return add_step(w, (struct step){.kind = STEP_ACC, .cls = CLASS_TILE, .port = -1, .value = value});
    case OP_REDUCE: return reduce(w, n, value);
    case OP_EMBEDDING: return gather(w, n, value);
    case OP_CAST: return cast(w, n, value, &n->type);
    case OP_APPEND:
    case OP_ASSIGN: return next_version(w, n, value);
    case OP_SLICE: return operand(w, n, 0, domain_walked(w->gr->g, n));
    case OP_IOTA: return column(w, value);
    default: return map(w, n, value, &n->type);
    }
}

int write_member(struct writer *w, int value)
{
    w->range = w->gr->site[value].range;
    return as_stored(w, value, compute(w, value));
}
