/* overlap.h -- do two strided tensors share a byte? */
#ifndef OVERLAP_H
#define OVERLAP_H

#include "base.h"

/* Where the bytes of a strided tensor lie: runs of `run` bytes, at the sums of step[d] times 0 .. count[d]
 * - 1. Steps fall; all of them are longer than `run`, and no two dimensions could be one. */
struct lattice {
    int rank;
    int64_t step[CODA_MAX_RANK], count[CODA_MAX_RANK];
    int64_t run;
    int64_t bytes; /* from the first to the end of the last; 0: it has no element */
};

/* Strides are in elements, as strides_check() lets them pass. */
struct lattice lattice_strided(coda_dtype t, int rank, const int64_t *dim, const int64_t *stride);
struct lattice lattice_bytes(int64_t bytes);

enum meeting { APART, MEET, UNDECIDED };
/* `from` is where b begins, in bytes from where a begins. Exact; takes from *work, a number of steps, and
 * leaves it at UNDECIDED when that is spent. */
enum meeting lattices_meet(const struct lattice *a, const struct lattice *b, int64_t from, int *work);

#endif
