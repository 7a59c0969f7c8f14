/*
 * variants.h -- few tiles for all numbers of rows of a product, so that plans of many shapes share kernels.
 *
 * A kernel of such a tile is for any number of rows up to tile.most_rows. The tile of a number of rows
 * depends on the program and that number alone, not on what was asked before.
 */
#ifndef VARIANTS_H
#define VARIANTS_H

#include "tile.h"

struct variants; /* of the programs that were met; many threads may ask */

struct variants *variants_new(void); /* NULL: out of memory, with the message set */
void variants_free(struct variants *v);
/* Around fork(). */
void variants_hold(struct variants *v);
void variants_let_go(struct variants *v);

/* Has this program such tiles? Of more than one batch it has the tile that tile_choose gives. */
bool variants_take(const struct program *q);
/* The tile of q at its rows; within VARIANT_TOLERANCE of the cheapest, by price, or within SINGLE_TOLERANCE
 * where it would be for one class of rows alone. */
enum { VARIANT_TOLERANCE = 6, SINGLE_TOLERANCE = 8 }; /* per cent */
bool variants_tile(struct variants *v, const struct plan *p, const struct program *q,
                   const struct target *target, struct tile *out); /* false: out of memory */
/* One tile for all its rows, however slow. */
bool variants_base(struct variants *v, const struct plan *p, const struct program *q,
                   const struct target *target, struct tile *out); /* false: out of memory */
/* Products that differ in their rows alone, found once: NULL, out of memory. It lasts as long as v, and has
 * the tiles of any of them, or, if `base`, one for all. */
struct product;
struct product *variants_find(struct variants *v, const struct plan *p, const struct program *q,
                              const struct target *target);
bool variants_tile_of(struct variants *v, struct product *f, const struct program *q, bool base,
                      struct tile *out); /* false: out of memory */
/* The same product of so many rows; the most rows that have the tile of these. */
struct program variants_at(const struct program *q, int64_t rows);
/* A product without what follows from its rows: their number, and how far batches, of which there is one, are
 * apart. false: out of memory. */
bool variants_blank(struct program *out, struct arena *a, const struct program *q);
int64_t variants_last(int64_t rows);

/* variants_print.c: appends, for each product of a plan, its tiles by rows, up to those that it has, and by
 * how much each costs more than the cheapest one, at most; and its base. false: out of memory. */
bool variants_print(struct variants *v, const struct plan *p, struct text *t);

#endif
