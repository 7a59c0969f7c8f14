/*
 * rows_schedule.c -- decides how a rows kernel walks its domain: how many threads share a row, and which
 * loads they keep in registers.
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
    EARLY_BLOCKS = 1024   /* ... in so many blocks */
};

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

/* The threads of a block that is one team, if there is a number with which all have equally many pieces:
 * each then asks for all of its row's at once, behind no branch. */
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
    bool walks = rows_live(w, p, STEP_REDUCE) || (rows_live(w, p, STEP_PARTIAL) && rows_store_columns(w, p));
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
    bool turns = w->team > 32 && rows_live(w, p, STEP_PAIR), waits = turns || rows_live(w, p, STEP_PARTIAL);
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
        if (!w->live[i] || !rows_load_column(&p->step[i]) || !is_of_all_rows(w, p, i)) continue;
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
        if (!rows_load_column(s) || (w->width > 1 && !w->packed[s->port]) || w->early[i]) continue;
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
    rows_domain(w, p);
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
        if (!w->live[i] || !rows_load_column(s) || !w->packed[s->port] || p->port[s->port].role != USE_LOAD)
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
