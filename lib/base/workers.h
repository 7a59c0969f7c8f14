/* workers.h -- threads that stay, for which parallel.c alone asks. */
#ifndef WORKERS_H
#define WORKERS_H

#include "base.h"

/* fn(ctx, i) for i in 0..n-1 on the caller's thread and up to threads - 1 others. */
void workers_run(int64_t n, int threads, void (*fn)(void *ctx, int64_t i), void *ctx);

#endif
