/* tile.h -- the tile and mainloop of a GEMM, by its shape: pure functions of tile.c and its parts. */
#ifndef TILE_H
#define TILE_H

#include "plan.h"

/* KNOWN: tiles whose prices rest on measurements. The others' do not yet, and only tuning may choose one.
 * ORDER tile_class */
enum tile_class {
    TILES_KNOWN,
    TILES_SQUARE,    /* KNOWN ones of many rows, walked in squares                                 */
    TILES_SCATTERED, /* blocks of a cluster share K, and each drains a share of the columns        */
    TILES_CLUSTERED, /* blocks of a cluster share operands                                         */
    TILES_THREE,     /* of three consumers, clustered or not                                       */
    TILES_SKINNY,    /* up to 16 rows, streamed in ways that are not KNOWN                         */
    TILE_CLASSES
};
/* The cheapest of a class, `most` of them or fewer, cheapest first; returns how many. */
int tile_candidates(const struct program *p, const struct machine *m, enum tile_class c, struct tile *out,
                    int most);
struct tile tile_choose(const struct program *p, const struct machine *m); /* the cheapest known   */
/* The candidate that tile_print describes by these words; tile_choose's, if there is none. */
struct tile tile_named(const struct program *p, const struct machine *m, const char *words);
/* A line that says why a program has the slow kernel, and what would help; nothing if it has another. */
void tile_explain(const struct program *p, const struct machine *m, struct text *t);
/* As many stages of tile t as fit. */
int tile_stages(const struct program *p, const struct tile *t, int shared_bytes);
/* In the words of a plan's text: tile_print.c. */
void tile_print(const struct tile *tile, struct text *t);
/* By price: is the GEMM so slow in the tile it has that cuBLASLt and an epilogue apart are faster? */
bool tile_loses(const struct program *p, const struct machine *m);

#endif
