/* wgmma.h -- what mainloop_wgmma.c, which enumerates tiles, shares with wgmma_fits.c (which are legal) and
 * wgmma_cost.c (what they cost). */
#ifndef WGMMA_H
#define WGMMA_H

#include "mainloop.h"

enum {
    MOST_ODD_ROWS = 1024,  /* up to so many rows one wave more or less decides, and odd tile widths pay;
                              beyond, the card's power and L2 do ("many rows") */
    BAND_ROWS = 1024,      /* rows of A in a raster group, which thus stay in L2 */
    WAVE_ROWS = 1536,      /* likewise, of many rows, whose waves are squarest then */
    TILE_MOST_BLOCKS = 512 /* the cost of a tail counts the tiles of each block, in an array */
};

/* Is the tile legal: its width for the pairs, its accumulators for the registers, its parts for a cluster?
 * Shared memory is asked for apart (tile_stages). */
bool wgmma_fits(const struct program *p, const struct tile *t);
struct footprint wgmma_footprint(const struct program *p, const struct tile *t);
/* Shared memory of a block beside which a warp of another kernel is to have room; 0: registers do not do. */
int wgmma_bytes_beside_warp(const struct program *p, const struct tile *t);
/* Does the epilogue load a tile from memory into registers, not by TMA? Accumulators then have fewer. */
bool program_loads_directly(const struct program *p, const struct tile *t);
/* What both main loops share: do two blocks fit an SM; the launch; the constants of Config. */
bool wgmma_shares_sm(const struct program *p, const struct tile *t);
void wgmma_complete(struct schedule *s, const struct program *p, const struct target *target);
/* The line by which ptx/wgmma.cuh has products of n and of `other` columns alone. */
void wgmma_print_columns(struct text *t, int n, int other);
void wgmma_print_config(const struct program *p, const struct schedule *s, struct text *t);
/* Clock cycles of p in the tile; if it had so many tiles. */
double wgmma_cost_of(const struct program *p, const struct tile *t, const struct target *target,
                     int64_t tiles);
double wgmma_cost(const struct program *p, const struct tile *t, const struct target *target);

#endif
