/*
 * lower_ports.c -- the ports and steps of a program in the making: what is equal is there once. And loads.
 */
#include "writer.h"
#include "plan_sizes.h"

#include <string.h>

/* The array with place for one more element; NULL with the status set. */
static void *room(struct writer *w, void *array, int count, int *capacity, size_t size)
{
    void *wider = arena_grow(&w->gr->plan->arena, array, count, capacity, size);
    if (!wider) w->status = fail(CODA_E_MEMORY, "out of memory for a program of %d steps", w->p->steps);
    return wider;
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
    bool folds = step.kind == STEP_REDUCE && w->p->kind == PROGRAM_GEMM; /* the range's columns */
    step.range = step.cls == CLASS_ROW && !folds ? 0 : w->range;
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
int find_step(const struct writer *w, enum step_kind kind, int port, bool half)
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

struct tensor_use port_of(struct writer *w, enum use_role role, int value)
{
    struct grouper *gr = w->gr;
    struct tensor_use u = port_new(role, -1, 0, CODA_I32, -1);
    u.steady = true;
    if (value < 0) return u;
    const struct type *t = &gr->g->node[value].type;
    const struct view v = gr->view[value];
    gr->site[v.base].need = true;
    u = port_new(role, buffer_of(gr, v.base), v.offset, t->dtype, value);
    u.version = gr->site[v.base].version;
    u.steady = base_is_steady(gr, v.base);
    memcpy(u.stride, v.stride, sizeof *u.stride * (size_t)t->rank);
    return u;
}

/* The elements from `first` on of a value, as if its type were t. */
int load_from(struct writer *w, int value, int64_t first, const struct type *t, const struct type *as)
{
    return load_by(w, value, first, t, w->gr->view[value].stride, as);
}

/* Does a program of rows load the same columns for each of them, which no program of a run writes? */
static bool loads_early(const struct writer *w, int base, const int64_t *stride)
{
    bool early = w->q->p.kind == PROGRAM_ROWS && base_is_steady(w->gr, base);
    for (int d = 0; d + 1 < w->q->p.rank; d++) early = early && !stride[d];
    return early;
}

int load_by(struct writer *w, int value, int64_t first, const struct type *t, const int64_t *by,
            const struct type *as)
{
    struct view v = w->gr->view[value];
    struct type seen = *t;
    int64_t stride[CODA_MAX_RANK];
    memcpy(v.stride, by, sizeof v.stride);
    bool lies = v.base >= 0 && level_strides(w, &seen, v.stride);
    if (!lies || !domain_strides(w->q, &seen, v.stride, as, stride)) {
        w->status =
            fail(CODA_E_UNSUPPORTED, "plan: operand %%%d has no strides over its program's domain", value);
        return 0;
    }
    struct tensor_use port = port_new(USE_LOAD, buffer_of(w->gr, v.base), v.offset + first, t->dtype, value);
    memcpy(port.stride, stride, sizeof port.stride);
    port.version = w->gr->site[v.base].version;
    port.steady = loads_early(w, v.base, stride);
    domain_use_samples(w->q, &seen, v.stride, as, stride);
    w->gr->site[v.base].need = true;
    int index = add_port(w, port);
    struct step s = {.kind = STEP_LOAD, .cls = class_of(w->q, stride), .port = index, .value = value};
    s.half = s.cls != CLASS_ROW && is_half(w, as);
    int found = find_step(w, STEP_LOAD, index, s.half);
    return found >= 0 ? found : add_step(w, s);
}
