/*
 * epilogue_layout.h -- what the steps of a GEMM need of a tile, and a tile of the machine: asked by
 * tile_fits.c and tile_price.c, which make room for it, and by the emitters, which print it. The constants of
 * primitives/tile/epilogue.cuh and lent.cuh are the same facts in C++; primitives/tile/README.md has the
 * words.
 */
#ifndef EPILOGUE_LAYOUT_H
#define EPILOGUE_LAYOUT_H

#include "plan.h"

/* How often a step runs: once for each row of a tile, each column of the product, each column of a gated
 * output, or each slot (an element, or a pair of them). The first three run before the tile is drained and
 * leave their values in shared memory. */
enum level { LEVEL_ROW, LEVEL_COL, LEVEL_HALF, LEVEL_SLOT };
enum level step_level(const struct step *s);
/* Is the step computed on a level other than the slot's, and read by a slot? Its value then needs a field in
 * the kernel's Row, Col or Half. */
bool step_crosses(const struct program *p, int step);
/* Do positions follow from row numbers (rope_counts_rows), and is that of row r + 8 of a tile 8 more than
 * that of row r, for r % 16 < 8? A thread has both rows, and turns the first one's rotation further for the
 * second. */
bool rope_steps_evenly(const struct program *p);

/* Threads that compute the values of one row: 32, a warp, if rows are few and have partial states to merge,
 * which lanes then load in parallel; else 1. */
int program_row_team(const struct program *p);

/* Does this STORE leave through shared memory, by TMA? Other stores go from registers to memory. */
bool store_is_staged(const struct program *p, int step);
int count_staged(const struct program *p);
/* Rope of halves, in a tile that holds no whole heads: each 64 columns of it are 32 pairs of one head. */
bool program_splits_heads(const struct program *p);
int unit_columns(const struct program *p); /* columns of a TMA box of the epilogue, 32 or 64       */
/* The LOAD that comes through shared memory by TMA, ahead of the epilogue, as a step; -1 if there is none.
 * One load at most is; tiles with one consumer warpgroup have none. */
int fetched_load(const struct program *p);

/* ---- What follows from program and tile together ---- */

/* Dynamic shared memory of a block, in bytes: at least sizeof(Shared) of its mainloop. */
int tile_shared_bytes(const struct program *p);
/* Are there enough stages for the epilogue to stage in them (tile.lends)? */
bool program_may_lend(const struct program *p);
/* Rows of A that a slot holds: bm, or fewer where M is below 64, as rows that do not exist are not loaded. */
int tile_a_rows(const struct program *p);
int tile_splits(const struct tile *t); /* blocks that share K, at least 1                          */
int tile_share(const struct tile *t); /* columns of a tile that one block drains: bn, or bn / splits */
int tile_cluster_m(const struct tile *t); /* blocks that one multicast load of B serves, at least 1 */
int tile_cluster_n(const struct tile *t); /* the same, of A                                        */
int tile_cluster(const struct tile *t);   /* blocks of a cluster that have tiles of their own      */
/* Blocks of a grid in which each has one tile, or one part of its K; tiles past the end fill up clusters. */
int64_t program_blocks(const struct program *p);
/* Partial states that a reduction leaves of each row: one for each tile of columns, or streaming block. */
int64_t program_states(const struct program *p);
/* May the last tile.tail tiles of each row be tile.tail_bn wide? */
bool tail_fits(const struct program *p);
/* Do those tiles of B need a tensor map of their own, whose box is narrower? */
bool program_maps_tail(const struct program *p);
/* The first column of the product in a row's tile number `tile`, or in that share of one which has a state
 * of its own; N or more for one past the end. */
int64_t program_tile_column(const struct program *p, int64_t tile);
/* GEMV or SKINNY: B streams through shared memory, and each block has an equal share of N. */
bool tile_streams(const struct tile *t);
/* Do a block's threads and registers leave room for a second one on its SM? */
bool program_shares_sm(const struct program *p);
bool tile_is_narrow(const struct tile *t); /* MAINLOOP_SM90 with one consumer warpgroup            */
/* Does it stream weights that no program of a run writes? It may then begin to, by programmatic dependent
 * launch, before the program ahead of it has ended. */
bool program_is_early(const struct program *p);

#endif
