/*
 * columns_schedule.c -- how a rows program folds columns, and how it finishes what was folded.
 *
 * A column is never one thread's alone, whose reads would be a pitch apart: neighbouring threads have
 * neighbouring pieces, so a warp reads up to 512 adjacent bytes of a row. Parts of a matrix's rows keep all
 * SMs busy; each leaves a state of every column, and a second program merges these, several threads a column.
 */
#include "rows_schedule.h"

enum {
    THREADS = 256,       /* of a block */
    MOST_ACROSS = 32,    /* a warp beside each other */
    FEWEST_ROWS = 8,     /* that a thread should fold */
    BLOCKS_PER_SM = 4,   /* whose loads together keep memory busy; ... */
    TEAMS_PER_SM = 1024, /* ... if they walk rows, so many threads */
    FEW_STATES = 4,      /* that one thread merges of a column; of more ... */
    SOME_DOWN = 8,       /* ... so many do, ... */
    MANY_STATES = 64,    /* ... and of more than these ... */
    MANY_DOWN = 32       /* ... so many */
};

static bool is_live(const struct rows_walk *w, const struct program *p, enum step_kind kind)
{
    for (int i = 0; i < p->steps; i++)
        if (w->live[i] && p->step[i].kind == kind && p->step[i].axis == REDUCE_COLUMNS) return true;
    return false;
}

int64_t columns_slabs(const struct rows_walk *w, int64_t columns)
{
    return CEIL_DIV(columns / w->width, w->across);
}

void columns_find(struct rows_walk *w, const struct program *p)
{
    w->folds = is_live(w, p, STEP_REDUCE);
    w->finishes = !w->folds && is_live(w, p, STEP_PARTIAL);
}

static int most_states(const struct rows_walk *w, const struct program *p)
{
    int most = 0;
    for (int i = 0; i < p->steps; i++)
        if (w->live[i] && p->step[i].kind == STEP_PARTIAL) most = MAX(most, p->port[p->step[i].port].blocks);
    return most;
}

static int states_left(const struct rows_walk *w, const struct program *p)
{
    for (int i = 0; i < p->steps; i++)
        if (w->live[i] && step_folds_columns(&p->step[i])) return p->port[p->step[i].port].blocks;
    return 0;
}

/* Slabs of each range are counted apart, so that a block has columns of one range. */
static int64_t slabs_of(const struct rows_walk *w, const struct program *p)
{
    int64_t slabs = 0;
    for (int r = 0; r < p->ranges; r++) slabs += columns_slabs(w, p->range[r].end - p->range[r].first);
    return p->ranges ? slabs : columns_slabs(w, w->columns);
}

/* A part has rows: as many as others, but for the last one. */
void columns_walk(struct rows_walk *w, const struct program *p)
{
    if (!w->folds && !w->finishes) return;
    w->across = w->team ? w->team : 1;
    w->down = 1;
    if (!w->team) w->threads = THREADS;
    if (w->folds) {
        while (!w->team && w->across < MOST_ACROSS && w->across < w->pieces) w->across *= 2;
        w->down = w->threads / w->across;
        w->parts = states_left(w, p);
        w->part_rows = w->parts ? CEIL_DIV(p->dim[p->rank - 2], w->parts) : 0;
    } else {
        int states = most_states(w, p);
        w->down = states <= FEW_STATES ? 1 : states <= MANY_STATES ? SOME_DOWN : MANY_DOWN;
        w->across = THREADS / w->down;
    }
    w->slabs = w->team ? 1 : slabs_of(w, p);
    w->matrices = w->folds ? w->rows / MAX(p->dim[p->rank - 2], 1) : w->rows;
    w->blocks = mul_counts(w->matrices, w->slabs * (w->folds ? w->parts : 1));
}

/* As many blocks keep the device busy. */
static int64_t blocks_wanted(const struct rows_walk *w, int sms)
{
    return (w->team ? MAX(TEAMS_PER_SM / w->threads, 1) : BLOCKS_PER_SM) * (int64_t)sms;
}

int64_t columns_states(const struct rows_walk *w, const struct program *p, int sms)
{
    int64_t rows = p->dim[p->rank - 2];
    if (!w->folds) return 0;
    int64_t parts = blocks_wanted(w, sms) / MAX(mul_counts(w->slabs, w->rows / rows), 1);
    int64_t part_rows = CEIL_DIV(rows, MAX(MIN(parts, CEIL_DIV(rows, FEWEST_ROWS * w->down)), 1));
    return CEIL_DIV(rows, part_rows);
}

int64_t columns_most_states(const struct rows_walk *w, const struct program *p, int sms)
{
    int64_t rows = p->dim[p->rank - 2], matrices = rows ? w->rows / rows : 0;
    if (!w->folds || !matrices) return 0;
    int64_t all = mul_counts(matrices, CEIL_DIV(rows, FEWEST_ROWS * w->down));
    return MAX(matrices, MIN(blocks_wanted(w, sms) / MAX(w->slabs, 1), all));
}
