/*
 * lower_operands.c -- what the steps of one program read: members, loads, lanes, numbers, row statistics
 * finished on the spot, maps computed again.
 */
#include "writer.h"

#include <string.h>

static int load(struct writer *w, int value, const struct type *t, const struct type *as)
{
    return load_from(w, value, 0, t, as);
}

/* The class of what is made of numbers alone: one value for all rows. */
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

static int map(struct writer *w, const struct node *n, int value, const struct type *as)
{
    struct step s = {.kind = STEP_MAP, .prim = n->prim, .nin = n->nin, .port = -1, .value = value};
    for (int i = 0; i < n->nin; i++) {
        bool immediate = group_number(w->gr, n->in[i], &s.immediate[i]);
        s.in[i] = immediate ? IMMEDIATE : write_operand(w, n, i, as);
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

const struct prim *map_to(coda_dtype t)
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
    int x = write_operand(w, n, 0, as);
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

/* ---- Lanes, and what is computed again ---- */

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

int write_map(struct writer *w, int value, const struct type *as)
{
    const struct node *n = &w->gr->g->node[value];
    if (n->op == OP_IOTA) return column(w, value);
    return n->op == OP_CAST ? cast(w, n, value, as) : map(w, n, value, as);
}

/* What `view` is of, computed again as it is seen there. */
static int write_level(struct writer *w, int view, const struct type *as)
{
    struct site *s = &w->gr->site[view];
    struct level_view level = {w->level, view};
    if (!level.outer && s->again_in == w->q->index) return s->again;
    w->level = &level;
    int step = write_map(w, level_of(w->gr, view), as);
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
    if (w->gr->site[value].role == ROLE_INLINE) return write_map(w, value, as);
    return load(w, value, &w->gr->g->node[value].type, as);
}

/* ---- Rows of short columns ---- */

static int known(const struct short_columns *s, int value, int row)
{
    for (int i = 0; i < s->known; i++)
        if (s->step[i].value == value && s->step[i].row == row) return s->step[i].step;
    return -1;
}

static int load_row(struct writer *w, int value, int row)
{
    const struct type *whole = &w->gr->g->node[value].type;
    struct type t = short_row(whole);
    int64_t stride = whole->rank > 1 ? w->gr->view[value].stride[whole->rank - 2] : 0;
    return load_from(w, value, row * stride, &t, &w->gr->g->node[w->p->root].type);
}

/* Row `row` of a concat is one of its parts'. */
static int part_row(struct writer *w, const struct node *n, int row)
{
    int part = 0, height;
    while (row >= (height = short_height(&w->gr->g->node[n->in[part]].type))) row -= height, part++;
    return short_value(w, n->in[part], row);
}

static int compute_row(struct writer *w, int value, int row)
{
    const struct node *n = &w->gr->g->node[value];
    if (n->op == OP_CONCAT) return part_row(w, n, row);
    int outer = w->short_row;
    w->short_row = 1 + row;
    int step = write_map(w, value, &w->gr->g->node[w->p->root].type);
    w->short_row = outer;
    return step;
}

int short_value(struct writer *w, int value, int row)
{
    struct short_columns *s = w->q->short_columns;
    const struct type *t = &w->gr->g->node[value].type;
    if (value == s->version) value = w->gr->g->node[value].in[VERSION_VALUE];
    if (short_height(t) == 1) row = 0;
    if (w->gr->site[value].role != ROLE_WITHIN) return load_row(w, value, row);
    int step = known(s, value, row);
    if (step >= 0) return step;
    step = compute_row(w, value, row);
    if (s->known < MOST_COLUMN_STEPS) s->step[s->known++] = (struct short_step){value, row, step};
    return step;
}

static int combine(struct writer *w, int value, const char *map, int x, int y)
{
    struct step s = {
        .kind = STEP_MAP, .prim = prim_find(map), .nin = 2, .in = {x, y}, .port = -1, .value = value};
    s.cls = w->p->step[x].cls == w->p->step[y].cls ? w->p->step[x].cls : CLASS_TILE;
    return add_step(w, s);
}

int write_short_fold(struct writer *w, int value)
{
    const struct node *n = &w->gr->g->node[value];
    int height = w->q->short_columns->height, x = short_value(w, n->in[REDUCE_X], 0);
    for (int row = 1; row < height; row++)
        x = combine(w, value, short_map(n->prim), x, short_value(w, n->in[REDUCE_X], row));
    if (strcmp(n->prim->name, "mean")) return x;
    struct step s = {
        .kind = STEP_MAP, .prim = prim_find("scale"), .nin = 1, .in = {x}, .port = -1, .value = value};
    s.cls = w->p->step[x].cls;
    s.param[0] = 1.0f / (float)height;
    return add_step(w, s);
}

/* An operand of a map of short columns, of the row at hand. */
static int short_operand(struct writer *w, int value)
{
    float ignored;
    if (group_number(w->gr, value, &ignored)) return number(w, value);
    if (group_scalar(w->gr, value) >= 0) return scalar(w, group_scalar(w->gr, value));
    return short_value(w, value, w->short_row - 1);
}

/* ---- Operands ---- */

int write_operand(struct writer *w, const struct node *n, int i, const struct type *as)
{
    if (w->level) return level_operand(w, n->in[i], as);
    if (w->short_row) return short_operand(w, n->in[i]);
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
    s->again = write_map(w, value, as);
    s->again_in = w->q->index;
    return s->again;
}
