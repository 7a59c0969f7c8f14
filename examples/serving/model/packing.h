/*
 * packing.h -- matrices whose columns share scales in groups: a file's tensors become the records of
 * coda_quant.h on their way into memory, some rows at a time, by all cores, while the last ones are copied.
 */
#ifndef PACKING_H
#define PACKING_H

#include "weights.h"

/* Sets m->format by the tensors that stored_find has found. */
bool packing_format(struct stored_matrix *m, struct fault *f);
/* Whether columns of two matrices, which have orders, go into groups alike. */
bool packing_same_order(const struct stored_matrix *a, const struct stored_matrix *b);

/* The bytes of w->matrix, one behind the other. Host memory: PACKING_BYTES, and on the CPU device none. */
bool packing_load(const struct weight *w, struct device *d, char *to, struct fault *f);
/* Which column of the file each of a packed row is: int32. */
bool packing_load_order(const struct weight *w, struct device *d, char *to, struct fault *f);

enum { PACKING_SLOTS = 16, PACKING_SLOT = 2 << 20, PACKING_BYTES = PACKING_SLOTS * PACKING_SLOT };

#endif
