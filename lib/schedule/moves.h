/*
 * moves.h -- the tiles that go between an epilogue and memory by TMA, through shared memory, as data: staged
 * stores and fetched loads. primitives/tile/moves.cuh has the same forms in C++.
 */
#ifndef MOVES_H
#define MOVES_H

#include "tile.h"

/* The values that make up an element of a tile; each column of the output has one element. */
enum move_form {
    MOVE_WHOLE, /* one value, of 16 or 32 bits. Of a gated program's full-width value: that of its gate */
    MOVE_UPPER, /* ... that of its up, where the two halves of a row are stacked */
    MOVE_LANES, /* ... both, where they are neighbours: two of 16 bits */
    MOVE_TWINS  /* one value each of two steps, which are neighbours in memory: two of 16 bits */
};

struct move {
    enum move_form form;
    int step[2]; /* LOADs or STOREs; the second one of twins, else -1 */
    int bytes;   /* of an element, 2 or 4 */
};

enum { MOST_FETCHED = 3, MOST_STAGED = KERNEL_MAX_MAPS - 3 - MOST_FETCHED };

struct moves {
    struct move move[MAX(MOST_STAGED, MOST_FETCHED)];
    int count;
    int together,
        bytes; /* of one column: those that there are at most, and their bytes; not all are of one range */
};

/* The moves of a program in a tile. Values that do not fit go between registers and memory directly. */
struct moves staged_stores(const struct program *p, const struct tile *t);
struct moves fetched_loads(const struct program *p, const struct tile *t);
bool moves_have(const struct moves *m, int step);

/* Columns of the output that a block drains of a tile; of those, which are finished together, a chunk, and
 * which a TMA box has, a unit. */
int out_columns(const struct program *p, const struct tile *t);
int chunk_columns(const struct program *p, const struct tile *t);
int unit_columns(const struct program *p, const struct tile *t);
bool program_splits_heads(const struct program *p, const struct tile *t);
/* Units of what is fetched that are in shared memory at one time, for each consumer; as in
 * epilogue_layout.cuh. */
int fetch_slots(const struct program *p, const struct tile *t, const struct moves *m);

#endif
