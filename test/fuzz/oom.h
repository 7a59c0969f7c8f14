/* oom.h -- what oom.c does, besides: pieces of work that allocate. */
#ifndef OOM_H
#define OOM_H

#include <stdbool.h>

#include "coda.h"

/* The one allocation that fails has failed, and no other will. */
bool oom_is_over(void);

/* oom_shapes.c: plans of a graph with symbols, on the CPU device and on a GPU, and their kernels in a bundle,
 * with caches in `folder`. The first time nothing may fail: what comes of it is what later times are compared
 * with. CODA_E_INVALID: they differ. */
void shapes_open(const char *folder);
coda_status shapes_on_host(void);
coda_status shapes_on_gpu(void);
coda_status shapes_in_background(void);
coda_status shapes_in_bundle(void);

#endif
