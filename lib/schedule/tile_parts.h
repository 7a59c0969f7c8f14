/* tile_parts.h -- between tile.c, which chooses, tile_fits.c and tile_price.c. */
#ifndef TILE_PARTS_H
#define TILE_PARTS_H

#include "tile.h"

enum {
    MOST_ODD_ROWS = 1024, /* where a wave more or less matters; beyond, power does                 */
    TILE_MOST_BLOCKS = 512 /* that a tail may be dealt to                                           */
};

static inline bool program_is_half_rope(const struct program *p)
{
    return p->pair == PAIR_ROPE && p->rope.half;
}

/* ---- tile_fits.c ---- */

bool tile_fits(const struct program *p);              /* is p->tile one?                            */
bool program_loads_directly(const struct program *p); /* tiles that come in registers, not by TMA   */

/* ---- tile_price.c ---- */

double tile_price(const struct program *p, const struct tile *t, int sms);
double tile_stream_price(const struct program *p, const struct tile *t, int sms); /* streaming      */

#endif
