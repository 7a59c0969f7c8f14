/*
 * epilogue_layout.h -- what the steps of a GEMM need of a tile, and a tile of the target. The search for a
 * tile asks the functions; emitters read struct epilogue_layout, which holds the answers for the tile that
 * was chosen. The constants of primitives/tile/epilogue_layout.cuh and lent.cuh are the same facts in C++;
 * primitives/tile/README.md has the words.
 */
#ifndef EPILOGUE_LAYOUT_H
#define EPILOGUE_LAYOUT_H

#include "moves.h"

/* How often a step runs: once for each row of a tile, each column of the product, each column of a gated
 * output, or each slot (an element, or a pair of them); a scalar, which is a parameter, never. The first
 * three run before the tile is drained and leave their values in shared memory. A segment of columns has its
 * values before its slots have theirs. */
enum level { LEVEL_ROW, LEVEL_COL, LEVEL_HALF, LEVEL_SLOT, LEVEL_SCALAR, LEVEL_SEGMENT };

enum { ROWS_OF_WARPS = 16 }; /* up to so many rows a warp has each, and merges its states */

struct epilogue_layout {
    enum level *level; /* of each step */
    bool *crosses;     /* of each step: it runs on a level other than the slot's and a slot reads it;
                          its value then needs a field in the kernel's Row, Col or Half */
    bool *moved;       /* of each LOAD and STORE: TMA moves it, through shared memory; others go between
                          registers and memory */
    struct moves stores, loads; /* what is staged, and what is fetched ahead of the epilogue */
    int unit;                   /* columns of a TMA box of the epilogue, 32 or 64 */
    int row_team;               /* threads that compute the values of one row: 32, a warp, if rows are few and
                          have partial states to merge, which lanes then load in parallel; 2, if they are 64;
                          else 1 */
    int a_rows;                 /* rows of A that a slot of the ring holds ... */
    int a_box;                  /* ... and that are loaded into it */
    bool clips_a;               /* a launch has the rows of its own number loaded */
    int64_t states;             /* that a reduction leaves of each row; ... */
    int64_t column_states;      /* ... and of each column */
    int state_columns;          /* of which each of a row's is; 0: of a tile */
    bool splits_heads;          /* pairs whose halves are apart, in a tile that holds no whole heads: each 64
                          columns of it are 32 pairs of one head */
    bool maps_tail;             /* tail tiles of B need a tensor map of their own, whose box is narrower */
    bool steps_evenly;          /* pair_steps_evenly */
};

/* Fills the layout, in the arena; false: no memory. */
bool epilogue_layout_fill(struct epilogue_layout *l, struct arena *a, const struct program *p,
                          const struct tile *t);

/* ---- Of the program alone ---- */

enum level step_level(const struct step *s);

/* ---- Of the program in a tile ---- */

/* Bytes of shared memory: for the rows' and columns' values of one consumer, for what all consumers stage. */
int values_bytes(const struct program *p, int rows, int columns);
int values_empty(const struct program *p, int rows, int columns); /* of these, a byte each that holds none */
int stage_bytes(const struct program *p, const struct tile *t);
/* ... of which a consumer has so many for what it stores. */
int stage_store_bytes(const struct program *p, const struct tile *t);
/* Rows of a tile that one consumer drains. */
int group_rows(const struct tile *t);
/* Are there enough stages for the epilogue to stage in them (tile.lends)? */
bool program_may_lend(const struct program *p, const struct tile *t);
/* Rows of A that a slot holds: bm, or fewer where M is below 64, as rows that do not exist are not loaded. */
int tile_a_rows(const struct program *p, const struct tile *t);
/* The rows of a slot that TMA loads for this number of rows of A. */
int tile_a_box(const struct program *p, const struct tile *t);
/* Blocks of a grid in which each has one tile, or one part of its K; tiles past the end fill up clusters. */
int64_t program_blocks(const struct program *p, const struct tile *t);
/* Tiles of columns, in each of which a row is. */
int64_t program_row_tiles(const struct program *p, const struct tile *t);
/* Partial states that a reduction leaves of each row: one for each of these, or streaming block, or as
 * program_state_columns says. */
int64_t program_states(const struct program *p, const struct tile *t);
/* The same of each column: one for each part of a tile's rows that one consumer drains; a stream leaves
 * none. */
int64_t program_column_states(const struct program *p, const struct tile *t);
/* May the last t->tail tiles of each row be t->tail_bn wide? */
bool tail_fits(const struct program *p, const struct tile *t);
/* The first column of the product in a row's tile number `tile`, or in that share of one which has a state
 * of its own; N or more for one past the end. */
int64_t program_tile_column(const struct program *p, const struct tile *t, int64_t tile);

#endif
