/*
 * epilogue_layout.h -- what the steps of a GEMM need: asked by tile_fits.c, which makes room for it, and by
 * the emitters, which print it.
 */
#ifndef EPILOGUE_LAYOUT_H
#define EPILOGUE_LAYOUT_H

#include "plan.h"

/* Where a step runs: once for each row of a tile, each column of the product, each column of a gated
 * output, or each slot (an element, or the lanes of a pair). */
enum level { LEVEL_ROW, LEVEL_COL, LEVEL_HALF, LEVEL_SLOT };
enum level step_level(const struct step *s);
/* A slot reads it, but it is computed on another level. */
bool step_crosses(const struct program *p, int step);
/* Rows are counted (rope_counts_rows), and the position of row r + 8 of a tile is 8 more than that of row r,
 * for r % 16 < 8. */
bool rope_steps_evenly(const struct program *p);

/* Threads that make the values of a row: a warp if rows are few and have states to merge, else 1.   */
int program_row_team(const struct program *p);

/* Staged stores leave through shared memory by TMA. */
bool store_is_staged(const struct program *p, int step);
int count_staged(const struct program *p);
bool program_splits_heads(const struct program *p); /* rotated halves, in tiles of no whole heads     */
int unit_columns(const struct program *p); /* of a box that is staged or fetched                   */
/* The one load that comes through shared memory by TMA, a step; -1 if there is none. Narrow blocks do
 * without. */
int fetched_load(const struct program *p);

/* What a tile makes of it. */
int tile_shared_bytes(const struct program *p);
bool program_may_lend(const struct program *p); /* has the ring slots enough for the epilogue?      */
int tile_a_rows(const struct program *p); /* of A's box: those that exist                          */
int tile_splits(const struct tile *t);
int tile_share(const struct tile *t); /* columns that a block drains                               */
int tile_cluster_m(const struct tile *t); /* blocks that get one tile of B, ...                    */
int tile_cluster_n(const struct tile *t); /* ... of A                                              */
int tile_cluster(const struct tile *t);   /* blocks of a cluster with tiles of their own           */
int64_t program_blocks(const struct program *p); /* blocks of all tiles, in whole clusters         */
int64_t program_states(const struct program *p); /* that a reduction leaves of each row                */
bool tail_fits(const struct program *p); /* can the last tiles of each row be as narrow as it says? */
bool program_maps_tail(const struct program *p); /* do they come by a map of their own?          */
/* First column of the product in a tile of each row, N or more past the end. */
int64_t program_tile_column(const struct program *p, int64_t tile);
bool tile_streams(const struct tile *t);     /* B, to blocks with equal shares of the columns       */
bool program_shares_sm(const struct program *p); /* its blocks leave room for others                 */
bool tile_is_narrow(const struct tile *t); /* one consumer; two blocks share an SM                 */
/* Streams weights that no program of a run writes: begins before the program ahead has ended. */
bool program_is_early(const struct program *p);

#endif
