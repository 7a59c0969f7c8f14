/* rows_schedule.h -- how a kernel walks the domain of a rows program; between rows_schedule.c, which decides,
 * and emit_rows.c, which prints. */
#ifndef ROWS_SCHEDULE_H
#define ROWS_SCHEDULE_H

#include "plan.h"

/*
 * The domain with dimensions of 1 dropped and neighbours joined where every port allows it; the last
 * dimension holds the columns. A thread handles `width` adjacent columns at once: a piece.
 *
 * Without reductions (team 0) threads walk over pieces. With them a team of threads walks one row, once
 * for each phase: a value is of phase k if it needs k reductions of its row to be finished before.
 * Later walks compute column values again from their loads; a load that they share and that fits is kept
 * in registers. A block that is one team has as many threads as give each of them equally many pieces, if
 * there is such a number; it makes the turns of a row's pairs once for all heads.
 *
 * Where columns are folded, `across` times `down` threads of a block have a piece each of the same columns,
 * and fold every down-th row of a part of a matrix: a block for each matrix, part and slab of columns. Where
 * the states that parts have left are finished, each of `down` threads merges some of a column's, and a block
 * has a slab of a matrix, or of a range. Neither has teams, but where rows are folded as well as columns:
 * then teams walk the rows of a block's part, each thread keeps states of all columns that it meets, and the
 * block merges them.
 *
 * States of a row that tiles have made are merged by lanes of its team; a row that has few, and no columns
 * to walk, has one thread. What the first walk loads is then asked for ahead of them, and kept.
 */
struct rows_walk {
    int rank;
    int64_t dim[CODA_MAX_RANK];
    int64_t (*stride)[CODA_MAX_RANK]; /* of each port, over dim */
    int64_t rows, columns;            /* rows: of the domain joined so */
    bool joined;                      /* the columns are those of several rows */
    int width, team, threads;         /* threads: of a block */
    int64_t pieces, items;            /* of a row; of a thread of a team */
    bool folds, finishes;             /* columns; or their statistics */
    int across, down;                 /* threads of a block, for either; teams: of one, and their number */
    int64_t slabs;                    /* of `across` pieces, in a row, or in all ranges */
    int64_t matrices, parts;          /* folds: whose columns; of each of them */
    int64_t part_rows;                /* of such a part, but for a matrix's last one */
    int64_t blocks;                   /* folds, finishes: of threads, if each has one */
    int phases;
    bool *live;    /* steps: some store needs it */
    int *phase;    /* steps: of the value; of a store, of what it stores */
    bool *kept;    /* steps: a load that a thread keeps for later phases */
    bool *ahead;   /* steps: ... and that it makes before its row's values */
    bool *early;   /* steps: a load of what all rows share, made once, before the kernel ahead has ended */
    bool *partner; /* steps: an element's partner is made of it */
    bool *packed;  /* ports: pieces move as a whole */
};

coda_status rows_walk(struct rows_walk *w, struct arena *arena, const struct program *p);
/* The walk of a program that makes a sum over ranks of what it loads: a thread of a row's team asks for all
 * that it needs before it waits. The exchange costs it as many instructions as a piece does, so each has two
 * pieces, or more where a block has no threads for that. Of a wave of rows each has one: with a block an SM
 * more threads ask sooner. */
enum { ROWS_SPREAD = 2 };
void rows_spread(struct rows_walk *w, const struct program *p);
/* Blocks of a grid that walks all of it; 0 if nothing is stored. */
int64_t rows_blocks(const struct rows_walk *w, const struct program *p);

/* rows_domain.c: fills in the dimensions, the width and the pieces. */
void rows_domain(struct rows_walk *w, const struct program *p);
bool rows_live(const struct rows_walk *w, const struct program *p, enum step_kind kind); /* is one live? */
bool rows_store_columns(const struct rows_walk *w, const struct program *p);
bool rows_load_column(const struct step *s); /* is it a load of what varies with the columns? */

/* rows_phases.c: fills in w->live, w->phase and w->phases; `needed` is room for a flag of each step. */
void rows_number(struct rows_walk *w, const struct program *p, bool *needed);

/* columns_schedule.c */
/* Fills in w->folds and w->finishes; then, once the width is known, how they are done. */
void columns_find(struct rows_walk *w, const struct program *p);
void columns_walk(struct rows_walk *w, const struct program *p);
/* Slabs of a row of so many columns. */
int64_t columns_slabs(const struct rows_walk *w, int64_t columns);
/* Parts of a matrix's rows, each of which leaves a state of a column, on so many SMs; 0: there is no row. */
int64_t columns_states(const struct rows_walk *w, const struct program *p, int sms);
/* The most that all matrices together could have if there were as many matrices and rows, or fewer. */
int64_t columns_most_states(const struct rows_walk *w, const struct program *p, int sms);

/* How many lanes of a team merge the states that tiles have left of a row: one, a few, or a warp. */
int rows_lanes(const struct rows_walk *w, const struct tensor_use *port);
/* The first live step whose state this one, a REDUCE or a PARTIAL, reads: perhaps itself; and whether another
 * one reads it too. */
int rows_state(const struct rows_walk *w, const struct program *p, int step);
bool rows_shares_state(const struct rows_walk *w, const struct program *p, int step);
/* The step that says which row of a table a step loads, or of a state it stores; -1. */
int rows_index(const struct program *p, const struct step *s);
/* Does the walk of this phase go over columns, and which column values does it compute? */
bool rows_sink(const struct rows_walk *w, const struct program *p, int step, int phase);
bool rows_needs(const struct rows_walk *w, const struct program *p, int phase, bool *needed);

#endif
