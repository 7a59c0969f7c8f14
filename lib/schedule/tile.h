/* tile.h -- the tile and mainloop of a GEMM, by its shape: pure functions of tile.c and its parts. Price: the
 * clock cycles that tile_price.c's cost model expects. */
#ifndef TILE_H
#define TILE_H

#include "plan.h"

/* Candidates by kind. The prices of KNOWN tiles are fitted to measurements, so that tile_choose may trust
 * them; the other classes' prices only rank their members, and only tuning, which times them, may choose one.
 * ORDER tile_class */
enum tile_class {
    TILES_KNOWN,
    TILES_SQUARE,    /* over 1024 rows, many waves: each wave's tiles form about a square, for L2  */
    TILES_SCATTERED, /* split-K by reduce-scatter: each block of a cluster drains some columns     */
    TILES_CLUSTERED, /* pairs of blocks share a multicast load of A or B                           */
    TILES_THREE,     /* three consumer warpgroups, 192 rows; alone or in such pairs                */
    TILES_SKINNY,    /* at most 16 rows, MAINLOOP_SKINNY, in the forms that are not KNOWN          */
    TILE_CLASSES
};
/* Writes the cheapest `most` candidates of a class, or as many as there are, to out, cheapest first, and
 * returns their number. KNOWN is never empty: what no other mainloop takes has the SIMT tile. */
int tile_candidates(const struct program *p, const struct machine *m, enum tile_class c, struct tile *out,
                    int most);
struct tile tile_choose(const struct program *p, const struct machine *m); /* the cheapest KNOWN tile */
/* The candidate of any class that tile_print prints as `words`; tile_choose's, if none is printed so. */
struct tile tile_named(const struct program *p, const struct machine *m, const char *words);
/* Appends a line that says why a program has the SIMT mainloop, which is slow, and what would help; nothing
 * if it has another one. */
void tile_explain(const struct program *p, const struct machine *m, struct text *t);
/* The most stages with which tile t takes at most `shared_bytes` of shared memory; 0 if none fits. */
int tile_stages(const struct program *p, const struct tile *t, int shared_bytes);
/* Appends the tile in the words of a plan's text, by which the cache keeps it: tile_print.c. */
void tile_print(const struct tile *tile, struct text *t);
/* By estimated times: would cuBLASLt, with the epilogue as kernels of its own, beat p's tile? Asked of SIMT
 * tiles; true only where it wins by a quarter, as both estimates are rough. */
bool tile_loses(const struct program *p, const struct machine *m);

#endif
