/*
 * lower_stores.c -- where each value of a program is stored: in memory for other programs, in outputs, in
 * parts of what is concatenated, in states.
 */
#include "fuse_own.h"

#include <string.h>

/* Stores what a member's step holds by the port, in some of its columns; end 0: in all. */
static void store_by(struct writer *w, int value, const struct type *t, struct tensor_use port,
                     struct column_range columns)
{
    const struct step *from = &w->p->step[step_of(w, value)];
    struct step s = {.kind = STEP_STORE, .half = from->half, .nin = 1, .value = value};
    bool one = extent_is_one(type_columns(t));
    bool one_a_row = w->p->kind == PROGRAM_ROWS && one && !domain_is_column(w->q) && !w->q->finishes;
    s.cls = one_a_row ? CLASS_ROW : from->cls == CLASS_SEGMENT ? CLASS_SEGMENT : CLASS_TILE;
    s.in[0] = step_of(w, value);
    s.store_columns = columns;
    s.port = add_port(w, port);
    add_step(w, s);
}

/* What of a product's columns states take, and nobody else reads, is not stored besides. */
static struct column_range store_columns_of(const struct writer *w, int value, int buffer)
{
    bool own = w->gr->site[value].buffer == buffer, appended = false;
    for (int m = w->q->first; m >= 0; m = w->gr->site[m].next)
        appended = appended || w->gr->site[m].store_columns.end;
    return own && appended ? segment_read(w->gr, w->q, value) : (struct column_range){0, 0};
}

static void store(struct writer *w, int value, int buffer, int64_t offset, const int64_t *stride,
                  unsigned effect)
{
    const struct type *t = &w->gr->g->node[value].type;
    struct tensor_use port = port_new(USE_STORE, buffer, offset, t->dtype, value);
    int64_t out[CODA_MAX_RANK];
    port.effect = effect;
    port.version = w->gr->site[value].version;
    if (!domain_strides(w->q, t, stride, t, out)) {
        w->status = fail(CODA_E_UNSUPPORTED, "plan: %%%d cannot be stored by its program's domain", value);
        return;
    }
    memcpy(port.stride, out, sizeof port.stride);
    if (w->q->finishes) port.stride[0] = line_length(t) * port.stride[1]; /* of a row, if there were more */
    store_by(w, value, t, port, store_columns_of(w, value, buffer));
}

/* Stores what a value has in some columns where it lies among all. */
static void store_rest(struct writer *w, int value, const struct column_range *rest)
{
    const struct type *t = &w->gr->g->node[value].type;
    int64_t dense[CODA_MAX_RANK];
    dense_strides(t, dense);
    for (int i = 0; i < 2; i++) {
        if (!extent_reaches(rest[i].end, rest[i].first + 1)) continue;
        w->range = segment_range(w->p, rest[i].first, rest[i].end - rest[i].first);
        store(w, value, buffer_of(w->gr, value), rest[i].first, dense, 0);
    }
    w->range = 0;
}

/* Slots count the keys of pages [heads][page][head_dim]. */
static void by_heads(const struct node *append, int last, struct tensor_use *port)
{
    const int64_t *dim = append->type.dim, *stride = append->stride;
    if (extent_is_one(dim[3])) port->stride[last] = 1; /* whatever its stride is */
    port->table_rows = dim[0] * dim[2];
    port->table_stride = stride[2];
    port->page = MAX(dim[2], 1);
    port->page_stride = stride[0];
    port->head_dim = MAX(dim[3], 1);
    port->head_stride = stride[1];
}

/* Each row of a state's short columns. */
static void store_short(struct writer *w, int value, int buffer)
{
    const struct node *n = &w->gr->g->node[value];
    const struct type *row = &w->gr->g->node[w->p->root].type;
    for (int r = 0; r < w->q->short_columns->height; r++) {
        struct tensor_use port =
            port_new(USE_STORE, buffer, r * n->stride[n->type.rank - 2], n->type.dtype, value);
        struct step s = {.kind = STEP_STORE, .cls = CLASS_TILE, .nin = 1, .value = value};
        port.version = w->gr->site[value].version;
        domain_strides(w->q, row, n->stride, row, port.stride);
        s.in[0] = short_value(w, value, r);
        s.port = add_port(w, port);
        add_step(w, s);
    }
}

/* Rows go where their slots are, a whole value where the state lies. */
static void store_version(struct writer *w, int value)
{
    const struct node *n = &w->gr->g->node[value];
    int buffer = buffer_of(w->gr, value), last = w->p->rank - 1;
    if (short_has(w->q, value)) {
        store_short(w, value, buffer);
        return;
    }
    if (w->q->conv1d && w->q->conv1d->version == value) {
        store_conv1d_state(w, value, buffer);
        return;
    }
    if (n->op == OP_ASSIGN) {
        store(w, value, buffer, 0, n->stride, 0);
        return;
    }
    struct tensor_use port = port_new(USE_SCATTER, buffer, 0, n->type.dtype, value);
    port.version = w->gr->site[value].version;
    port.index = w->gr->site[value].slot;
    port.scale = w->gr->site[value].scale;
    port.table_rows = type_rows(&n->type);
    port.stride[last] = n->stride[n->type.rank - 1];
    if (n->attr.append.layout == CODA_LAYOUT_HND) by_heads(n, last, &port);
    else view_collapse(&n->type, n->stride, 0, n->type.rank - 1, &port.table_stride);
    if (w->p->segment) port.stride[last + 1] = w->p->segment * port.stride[last];
    store_by(w, value, domain_walked(w->gr->g, n), port, w->gr->site[value].store_columns);
}

static void store_to_concats(struct writer *w, int value)
{
    const struct uses *u = &w->gr->uses;
    for (int i = u->at[value]; i < u->at[value + 1]; i++) {
        int c = u->use[i].node;
        const struct node *n = &w->gr->g->node[c];
        int64_t stride[CODA_MAX_RANK];
        if (n->op != OP_CONCAT) continue;
        view_part(n, stride);
        store(w, value, buffer_of(w->gr, c), part_offset(w->gr, c, u->use[i].operand), stride, 0);
    }
}

void lower_stores(struct writer *w, int value)
{
    const graph *g = w->gr->g;
    int own = own_output(g, value);
    int64_t dense[CODA_MAX_RANK];
    if (group_writes_state(w->gr, value)) {
        store_version(w, value);
        return;
    }
    struct column_range rest[2];
    dense_strides(&g->node[value].type, dense);
    if (w->gr->site[value].need && own < 0 && conv1d_stores_rest(w, value, rest)) store_rest(w, value, rest);
    else if (w->gr->site[value].need && own < 0) store(w, value, buffer_of(w->gr, value), 0, dense, 0);
    for (int o = g->node[value].output; o >= 0; o = g->output[o].next)
        store(w, value, output_buffer(w->gr, o), 0, g->output[o].stride, g->output[o].add ? EFFECT_ADD : 0);
    store_to_concats(w, value);
}
