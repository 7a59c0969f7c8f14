/*
 * rows_domain.c -- the domain of a rows program as its kernel walks it: which dimensions are joined, and how
 * many neighbouring columns a thread takes at once.
 */
#include "rows_schedule.h"

#include <string.h>

enum {
    PIECE_MOST = 8,
    PIECE_FLOATS = 128 /* registers for pieces that a walk loads, and stores */
};

static int64_t domain_columns(const struct program *p) { return p->rank ? p->dim[p->rank - 1] : 1; }

static int64_t domain_rows(const struct program *p)
{
    int64_t rows = 1;
    for (int d = 0; d + 1 < p->rank; d++) rows *= p->dim[d];
    return rows;
}

bool rows_live(const struct rows_walk *w, const struct program *p, enum step_kind kind)
{
    for (int i = 0; i < p->steps; i++)
        if (w->live[i] && p->step[i].kind == kind) return true;
    return false;
}

bool rows_store_columns(const struct rows_walk *w, const struct program *p)
{
    for (int i = 0; i < p->steps; i++)
        if (w->live[i] && p->step[i].kind == STEP_STORE && p->step[i].cls != CLASS_ROW) return true;
    return false;
}

/* ---- Ports ---- */

/* Is some live step's value loaded or stored through the port, and does it vary with the columns? */
static bool port_in_use(const struct rows_walk *w, const struct program *p, int port, bool columns)
{
    for (int i = 0; i < p->steps; i++) {
        const struct step *s = &p->step[i];
        bool element = s->kind == STEP_LOAD || s->kind == STEP_STORE;
        if (w->live[i] && element && s->port == port && (!columns || s->cls != CLASS_ROW)) return true;
    }
    return false;
}

/* ---- The domain ---- */

/* May dimension d of the domain be joined to the one inside it, of size `inner` by stride[last]? */
static bool may_join(const struct rows_walk *w, const struct program *p, int d, int64_t inner)
{
    for (int q = 0; q < p->ports; q++) {
        const struct tensor_use *port = &p->port[q];
        bool strided = port->role == USE_LOAD || port->role == USE_STORE;
        if (strided && port_in_use(w, p, q, false) && port->stride[d] != w->stride[q][0] * inner)
            return false;
    }
    return true;
}

/* Makes room for a new outermost dimension. */
static void push_dimension(struct rows_walk *w, const struct program *p, int64_t size, int d)
{
    memmove(w->dim + 1, w->dim, sizeof *w->dim * (size_t)w->rank);
    w->dim[0] = size;
    for (int q = 0; q < p->ports; q++) {
        memmove(w->stride[q] + 1, w->stride[q], sizeof **w->stride * (size_t)w->rank);
        w->stride[q][0] = d >= 0 ? p->port[q].stride[d] : 0;
    }
    w->rank++;
}

/* Are the columns of a row more than the inner end of a line of elements? */
static bool columns_matter(const struct rows_walk *w, const struct program *p)
{
    for (int q = 0; q < p->ports; q++)
        if (use_is_indexed(&p->port[q]) && port_in_use(w, p, q, false)) return true;
    return rows_live(w, p, STEP_COLUMN) || rows_live(w, p, STEP_REDUCE) || rows_live(w, p, STEP_PARTIAL) ||
           rows_live(w, p, STEP_PAIR);
}

static bool has_row_values(const struct rows_walk *w, const struct program *p)
{
    for (int i = 0; i < p->steps; i++)
        if (w->live[i] && step_is_of_row(&p->step[i])) return true;
    return false;
}

/* A column dimension of 1 gives its place to the one outside it. */
static void replace_columns(struct rows_walk *w, const struct program *p, int d)
{
    w->rank = 0;
    w->joined = true;
    push_dimension(w, p, p->dim[d], d);
}

static void join_dimension(struct rows_walk *w, const struct program *p, int d)
{
    w->joined = w->joined || w->rank == 1;
    w->dim[0] *= p->dim[d];
}

/* A dimension of 1 is left out, but if there is no other one: a single row is walked as several are. */
static void join_dimensions(struct rows_walk *w, const struct program *p, bool row_work_only)
{
    bool apart = columns_matter(w, p), row_values = has_row_values(w, p);
    push_dimension(w, p, row_work_only ? 1 : domain_columns(p), p->rank - 1);
    for (int q = 0; q < p->ports; q++) /* row values stay at column 0 */
        if (!port_in_use(w, p, q, true)) w->stride[q][0] = 0;
    for (int d = p->rank - 2; d >= 0; d--) {
        bool columns = w->rank == 1, rows = w->folds && w->rank == 2; /* of a matrix, which stays one */
        bool joins = !(columns && apart) && !rows && may_join(w, p, d, w->dim[0]);
        bool counts = p->dim[d] != 1 || (columns && (w->folds || joins || domain_rows(p) == 1));
        if (!counts) continue;
        if (columns && w->dim[0] == 1 && !apart && !row_values) replace_columns(w, p, d);
        else if (joins) join_dimension(w, p, d);
        else push_dimension(w, p, p->dim[d], d);
    }
    w->columns = w->dim[w->rank - 1];
    w->rows = 1;
    for (int d = 0; d + 1 < w->rank; d++) w->rows *= w->dim[d];
}

/* ---- Pieces ---- */

static bool is_unit(const struct rows_walk *w, const struct program *p, int port)
{
    bool adjacent = w->stride[port][w->rank - 1] == 1 && !use_is_packed(&p->port[port]);
    return port_in_use(w, p, port, true) && adjacent;
}

/* Every piece of `width` elements starts at a multiple of 16 bytes, or of its own size if that is less.
 * Buffers start at multiples of 16. */
static bool is_aligned(const struct rows_walk *w, const struct program *p, int port, int width)
{
    const struct tensor_use *q = &p->port[port];
    int64_t align = MIN(dtype_elements(q->dtype, 16), width);
    if (q->offset % align) return false;
    if (q->page && (q->page_stride % align || q->head_stride % align || q->head_dim % width)) return false;
    if (use_is_indexed(q)) return q->table_stride % align == 0;
    for (int d = 0; d + 1 < p->rank && p->invariant; d++) /* as with more than one index */
        if (q->stride[d] % align) return false;
    for (int d = 0; d + 1 < w->rank; d++)
        if (w->stride[port][d] % align) return false;
    return true;
}

static bool suits_pairs(const struct rows_walk *w, const struct program *p, int width)
{
    int pair = pair_step(p);
    bool suits = pair < 0 || !w->live[pair] || pair_suits_pieces(p, width);
    for (int i = 0; i < pair && w->live[pair]; i++)
        suits = suits && (!w->partner[i] || p->step[i].kind != STEP_LOAD || is_unit(w, p, p->step[i].port));
    return suits;
}

static bool suits_ports(const struct rows_walk *w, const struct program *p, int width)
{
    bool any = false;
    for (int q = 0; q < p->ports; q++) {
        if (!is_unit(w, p, q)) continue;
        if (!is_aligned(w, p, q, width) || dtype_bytes(p->port[q].dtype, width) > 32) return false;
        any = any || dtype_bytes(p->port[q].dtype, width) <= 16;
    }
    return any;
}

/* Does each piece consist of four or eight neighbours in a row of records, which are decoded together? */
static bool is_decoded(const struct rows_walk *w, const struct program *p, int port)
{
    const struct tensor_use *q = &p->port[port];
    if (!use_is_packed(q) || q->role != USE_GATHER || !port_in_use(w, p, port, true)) return false;
    int64_t columns = packed_at(q, q->offset).column | packed_at(q, q->table_stride).column;
    struct pack_format f = graph_format_of(q->packing.format);
    bool together = !pack_has_gaps(&f) || f.group % w->width == 0;
    return (w->width == 4 || w->width == 8) && columns % w->width == 0 && q->packing.columns > 1 &&
           together && w->stride[port][w->rank - 1] == 1;
}

bool rows_load_column(const struct step *s) { return s->kind == STEP_LOAD && !step_is_of_row(s); }

/* Is step i the first column store of its value? */
static bool is_column_result(const struct program *p, int i)
{
    const struct step *s = &p->step[i];
    bool stores = s->kind == STEP_STORE && s->cls != CLASS_ROW;
    for (int k = 0; k < i && stores; k++)
        stores = p->step[k].kind != STEP_STORE || p->step[k].in[0] != s->in[0];
    return stores;
}

/* Pieces that a walk may have in registers at once. */
static int count_pieces(const struct rows_walk *w, const struct program *p)
{
    int pieces = 0;
    for (int i = 0; i < p->steps; i++)
        pieces += w->live[i] && (rows_load_column(&p->step[i]) || is_column_result(p, i));
    return pieces;
}

/* The widest piece, with at least one port of 16 bytes or less, that all adjacent columns allow. */
static void choose_width(struct rows_walk *w, const struct program *p)
{
    w->width = w->finishes ? 1 : PIECE_MOST;
    while (w->width > 1 && count_pieces(w, p) * w->width > PIECE_FLOATS) w->width /= 2;
    while (w->width > 1 &&
           (w->columns % w->width || !suits_ports(w, p, w->width) || !suits_pairs(w, p, w->width)))
        w->width /= 2;
    for (int q = 0; q < p->ports; q++)
        w->packed[q] = (w->width > 1 && is_unit(w, p, q)) || is_decoded(w, p, q);
    w->pieces = w->columns / w->width;
}

void rows_domain(struct rows_walk *w, const struct program *p)
{
    join_dimensions(w, p, !rows_store_columns(w, p) && !rows_live(w, p, STEP_REDUCE));
    choose_width(w, p);
}
