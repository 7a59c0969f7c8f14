/*
 * rows_schedule.c -- decides how a rows kernel walks its domain: what may be joined, how many columns a
 * thread takes at once, how many threads share a row, which loads it keeps in registers.
 */
#include "rows_schedule.h"

#include <string.h>

enum {
    TEAM_MOST = 512,
    TEAM_ITEMS = 4,    /* pieces a thread of a block should have */
    BLOCK_SMALL = 128, /* threads of a block whose teams are warps, parts of these, or threads */
    BLOCK_FLAT = 256,
    FEW_WARPS = 528,      /* rows of a warp each: four for each SM of an H200; of more, up to ... */
    MANY_WARPS = 1 << 14, /* ... so many a block has eight, and there are half as many to start */
    KEPT_FLOATS = 64,     /* registers for loads that are used again, or made ahead, and columns' states */
    LANE_STATES = 4,      /* of a row, that one thread may merge before others help it: ... */
    FEW_LANES = 4,        /* ... so many, or a warp; each step more costs a shuffle of a state */
    EARLY_BYTES = 128,    /* registers for loads of what all rows share ... */
    EARLY_BLOCKS = 1024,  /* ... in so many blocks */
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

static bool is_live(const struct rows_walk *w, const struct program *p, enum step_kind kind)
{
    for (int i = 0; i < p->steps; i++)
        if (w->live[i] && p->step[i].kind == kind) return true;
    return false;
}

static bool has_column_store(const struct rows_walk *w, const struct program *p)
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
    return is_live(w, p, STEP_COLUMN) || is_live(w, p, STEP_REDUCE) || is_live(w, p, STEP_PARTIAL) ||
           is_live(w, p, STEP_PAIR);
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

static bool is_column_load(const struct step *s) { return s->kind == STEP_LOAD && !step_is_of_row(s); }

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
        pieces += w->live[i] && (is_column_load(&p->step[i]) || is_column_result(p, i));
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

/* ---- Teams ---- */

int rows_lanes(const struct rows_walk *w, const struct tensor_use *port)
{
    if (w->team <= 1) return 1;
    if (w->pieces <= 2) return 32; /* its states are all that a row has to do */
    if (port->blocks <= LANE_STATES) return 1;
    return port->blocks <= FEW_LANES * LANE_STATES ? FEW_LANES : 32;
}

int rows_state(const struct rows_walk *w, const struct program *p, int step)
{
    int i = 0;
    while (i < step && !(w->live[i] && step_shares_state(p, &p->step[i], &p->step[step]))) i++;
    return i;
}

bool rows_shares_state(const struct rows_walk *w, const struct program *p, int step)
{
    bool shares = false;
    for (int i = 0; i < p->steps; i++)
        shares = shares || (i != step && w->live[i] && step_shares_state(p, &p->step[i], &p->step[step]));
    return shares;
}

/* Are there so many states of a row that lanes should share them? */
static bool has_many_states(const struct rows_walk *w, const struct program *p)
{
    for (int i = 0; i < p->steps; i++)
        if (w->live[i] && p->step[i].kind == STEP_PARTIAL && p->port[p->step[i].port].blocks > LANE_STATES)
            return true;
    return false;
}

static bool folds_rows(const struct rows_walk *w, const struct program *p)
{
    for (int i = 0; i < p->steps; i++)
        if (w->live[i] && p->step[i].kind == STEP_REDUCE && p->step[i].axis == REDUCE_ROWS) return true;
    return false;
}

/* Floats of the states that a thread keeps for each of a piece's columns, where it walks rows. */
static int state_floats(const struct rows_walk *w, const struct program *p)
{
    int floats = 0;
    for (int i = 0; i < p->steps && w->team; i++) {
        const struct step *s = &p->step[i];
        if (w->live[i] && step_folds_columns(s) && rows_state(w, p, i) == i) floats += s->prim->state;
    }
    return floats;
}

/* Of a block's teams the one whose threads have all as many pieces, as many as it may have or fewer: a thread
 * asks for all of a row's at once, behind no branch. */
static int whole_team(const struct rows_walk *w)
{
    if (w->team < BLOCK_SMALL || w->pieces % w->team == 0) return w->team;
    for (int items = TEAM_ITEMS; items > 0; items--) {
        int64_t team = w->pieces / items;
        bool whole = w->pieces % items == 0 && team % 32 == 0;
        if (whole && team >= BLOCK_SMALL && team <= TEAM_MOST) return (int)team;
    }
    return w->team;
}

static void choose_team(struct rows_walk *w, const struct program *p)
{
    bool many = has_many_states(w, p);
    bool walks = is_live(w, p, STEP_REDUCE) || (is_live(w, p, STEP_PARTIAL) && has_column_store(w, p));
    int items = w->folds ? 1 : TEAM_ITEMS; /* of columns' states it has as many */
    w->threads = BLOCK_FLAT;
    w->items = 1;
    if (w->finishes || (w->folds && !folds_rows(w, p))) return;
    if (!walks && !many) return;
    w->threads = BLOCK_SMALL;
    w->team = w->pieces <= 2 && !many ? 1 : w->pieces <= 2 * 32 ? 32 : BLOCK_SMALL; /* whole warps fold */
    while (w->team >= BLOCK_SMALL && w->team < TEAM_MOST && w->pieces > items * w->team) w->team *= 2;
    if (!w->folds) w->team = whole_team(w);
    if (w->team == 32 && !w->folds && w->rows > FEW_WARPS && w->rows <= MANY_WARPS) w->threads = BLOCK_FLAT;
    w->threads = MAX(w->threads, w->team);
    w->items = CEIL_DIV(w->pieces, w->team);
}

/* May the first walk's load i be made before there are row values? A table's needs one. Turns are made while
 * it is on its way. Of threads of which some have a piece less each piece is behind a branch: what a row has
 * is then asked for in a walk of its own. */
static bool may_lead(const struct rows_walk *w, const struct program *p, const bool *needed, int i, int uses)
{
    bool turns = w->team > 32 && is_live(w, p, STEP_PAIR), waits = turns || is_live(w, p, STEP_PARTIAL);
    bool ragged = w->team && w->items > 1 && w->pieces % w->team && !w->folds && uses > 1;
    return w->team && needed[i] && p->port[p->step[i].port].role == USE_LOAD && (waits || ragged);
}

/* Are load i's columns the same for all rows, and written by no program of a run? */
static bool is_of_all_rows(const struct rows_walk *w, const struct program *p, int i)
{
    const struct step *s = &p->step[i];
    const struct tensor_use *port = &p->port[s->port];
    bool moves = w->packed[s->port] && w->width > 1 && !use_is_packed(port);
    bool shared = port->role == USE_LOAD && port->steady && moves;
    for (int d = 0; d + 1 < w->rank; d++) shared = shared && !w->stride[s->port][d];
    return shared;
}

/* Gains and biases of a norm, as they are stored, as long as they fit: of few blocks, which wait for each
 * trip to memory. Of more, others run meanwhile, and registers are what they lack. */
static void choose_early(struct rows_walk *w, const struct program *p)
{
    int64_t bytes = 0;
    bool few = w->team && !w->folds && !w->finishes && rows_blocks(w, p) <= EARLY_BLOCKS;
    for (int i = 0; i < p->steps && few && !p->prepare; i++) {
        if (!w->live[i] || !is_column_load(&p->step[i]) || !is_of_all_rows(w, p, i)) continue;
        int64_t each = w->items * w->width * dtype_bytes(p->port[p->step[i].port].dtype, 1);
        w->early[i] = bytes + each <= EARLY_BYTES;
        if (w->early[i]) bytes += each;
    }
}

/* Loads of more than one phase, and those to be made ahead, as long as they fit. */
static void choose_kept(struct rows_walk *w, const struct program *p, bool *needed, int *uses)
{
    int64_t each = w->items * w->width, floats = state_floats(w, p) * each;
    for (int phase = 0; phase < w->phases; phase++) {
        rows_needs(w, p, phase, needed);
        for (int i = 0; i < p->steps; i++) uses[i] += needed[i];
    }
    rows_needs(w, p, 0, needed);
    for (int i = 0; i < p->steps; i++) {
        const struct step *s = &p->step[i];
        if (!is_column_load(s) || (w->width > 1 && !w->packed[s->port]) || w->early[i]) continue;
        bool leads = may_lead(w, p, needed, i, uses[i]);
        w->kept[i] = (leads || uses[i] > 1) && floats + each <= KEPT_FLOATS;
        w->ahead[i] = leads && w->kept[i];
        if (w->kept[i]) floats += each;
    }
}

coda_status rows_walk(struct rows_walk *w, struct arena *arena, const struct program *p)
{
    *w = (struct rows_walk){0};
    w->stride = arena_alloc(arena, sizeof *w->stride * (size_t)p->ports);
    w->live = ARENA_NEW(arena, bool, p->steps);
    w->kept = ARENA_NEW(arena, bool, p->steps);
    w->ahead = ARENA_NEW(arena, bool, p->steps);
    w->early = ARENA_NEW(arena, bool, p->steps);
    w->phase = ARENA_NEW(arena, int, p->steps);
    w->partner = ARENA_NEW(arena, bool, p->steps);
    w->packed = ARENA_NEW(arena, bool, p->ports);
    bool *needed = ARENA_NEW(arena, bool, p->steps);
    int *uses = ARENA_NEW(arena, int, p->steps);
    if (arena->failed) return fail(CODA_E_MEMORY, "out of memory for a kernel of %d steps", p->steps);
    pair_mark_made(p, w->partner);
    rows_number(w, p, needed);
    columns_find(w, p);
    join_dimensions(w, p, !has_column_store(w, p) && !is_live(w, p, STEP_REDUCE));
    choose_width(w, p);
    choose_team(w, p);
    choose_early(w, p);
    choose_kept(w, p, needed, uses);
    columns_walk(w, p);
    return CODA_OK;
}

void rows_spread(struct rows_walk *w, const struct program *p)
{
    enum { WARP = 32, MOST_THREADS = 1024, LEAST_ROWS = 16, WAVE = 128 };
    bool wave = w->rows >= LEAST_ROWS && w->rows <= WAVE;
    int64_t each, floats = 0, spread = wave ? 1 : ROWS_SPREAD;
    if (w->team <= WARP || w->folds || w->finishes) return;
    w->team = w->threads = (int)MIN(CEIL_DIV(w->pieces, spread * WARP) * WARP, MOST_THREADS);
    w->items = CEIL_DIV(w->pieces, w->team);
    each = w->items * w->width;
    memset(w->early, 0, sizeof *w->early * (size_t)p->steps);
    for (int i = 0; i < p->steps; i++) {
        const struct step *s = &p->step[i];
        if (!w->live[i] || !is_column_load(s) || !w->packed[s->port] || p->port[s->port].role != USE_LOAD)
            continue;
        w->kept[i] = w->ahead[i] = floats + each <= KEPT_FLOATS;
        if (w->kept[i]) floats += each;
    }
}

static bool is_empty(const struct rows_walk *w, const struct program *p)
{
    for (int i = 0; i < p->steps; i++)
        if (w->live[i]) return false;
    return true;
}

int64_t rows_blocks(const struct rows_walk *w, const struct program *p)
{
    if (w->folds || w->finishes) return MIN(w->blocks, 1 << 30);
    int64_t most = w->team ? mul_counts(w->rows, w->team) : w->rows * w->pieces;
    return is_empty(w, p) ? 0 : MIN(most / w->threads + (most % w->threads != 0), 1 << 30);
}
