/*
 * invariant.h -- tiles in which a row of a product has the same bits, however many rows there are: what
 * CODA_BATCH_INVARIANT allows.
 *
 * A row's sums depend on its main loop, and on the order in which that walks K; its statistics also on how
 * its columns are cut. So a program whose rows are to keep their bits has one main loop for all numbers of
 * rows (search_run), which multiplies all of K from the beginning to the end, and leaves a state of each row
 * for so many columns that every tile consists of them (program_state_columns). What else a tile says is
 * where and when things are computed. That a sum has the same bits in each width of wgmma is what tests on a
 * card show (test/gpu/gpu_invariant.c).
 */
#ifndef INVARIANT_H
#define INVARIANT_H

#include "tile.h"

/* Has a row of p in this tile the bits that it has in all others of its main loop of which this is true? */
bool tile_keeps_bits(const struct program *p, const struct tile *t);

#endif
