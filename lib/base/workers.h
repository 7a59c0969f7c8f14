/* workers.h -- how threads are started; and threads that stay, for which parallel.c alone asks. */
#ifndef WORKERS_H
#define WORKERS_H

#include <pthread.h>

#include "base.h"

/* A thread that takes no signals of its process. It has 8 MB of stack, whatever the process gives others:
 * compilers recurse. False: the system has no more. */
bool workers_start(pthread_t *thread, void *(*fn)(void *), void *ctx);

/* fn(ctx, i) for i in 0..n-1 on the caller's thread and up to threads - 1 others. */
void workers_run(int64_t n, int threads, void (*fn)(void *ctx, int64_t i), void *ctx);

#endif
