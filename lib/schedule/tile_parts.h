/* tile_parts.h -- what tile.c, which enumerates and chooses, shares with tile_fits.c (which tiles are legal)
 * and tile_price.c (what they cost). */
#ifndef TILE_PARTS_H
#define TILE_PARTS_H

#include "tile.h"

enum {
    MOST_ODD_ROWS = 1024, /* up to so many rows one wave more or less decides, and odd tile widths pay;
                             beyond, the card's power and L2 do ("many rows")                      */
    TILE_MOST_BLOCKS = 512 /* the price of a tail counts the tiles of each block, in an array      */
};

/* Are the columns of a rotated pair half a rotary width apart? Tiles then hold heads or pieces of them. */
static inline bool program_is_half_rope(const struct program *p)
{
    return p->pair == PAIR_ROPE && p->rope.half;
}

/* ---- tile_fits.c ---- */

/* Is p->tile legal: its width for the pairs, its accumulators for the registers, its parts for a cluster?
 * Shared memory is asked for apart (tile_stages). */
bool tile_fits(const struct program *p);
/* Does the epilogue load a tile from memory into registers, not by TMA? Accumulators then have fewer. */
bool program_loads_directly(const struct program *p);

/* ---- tile_price.c ---- */

/* Clock cycles of p in tile t on so many SMs: of MAINLOOP_SM90, and of the streaming mainloops. */
double tile_price(const struct program *p, const struct tile *t, int sms);
double tile_stream_price(const struct program *p, const struct tile *t, int sms);

#endif
