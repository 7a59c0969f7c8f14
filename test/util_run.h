/* util_run.h -- compile a graph, run it with random arguments, compare with fp64. */
#ifndef UTIL_RUN_H
#define UTIL_RUN_H

#include "util_random.h"

/* What coda_evaluate makes of the graph with the arguments of `seed`; NULL with the message set. */
void **run_reference(const graph *g, uint64_t seed);

/* |got - want| / (|want| + a tenth of 1 for each element), of a strided output against dense fp64; an
 * element that is not finite where the other is gives infinity. */
double run_error(const graph *g, int output, const void *got, const double *want);

/* The largest error of any output of one run, or -1 with the message set. On the GPU every buffer starts
 * poisoned, the second run must repeat the bits of the first (else -2), and inputs must be unchanged. */
double run_on_cpu(const graph *g, uint64_t seed, const coda_compile_options *opt, void **want);
double run_on_gpu(const graph *g, uint64_t seed, const coda_compile_options *opt, void **want);

/* Does the graph hold what 16 bits can say nothing of: a row of few columns less its mean? */
bool run_ill_conditioned(const graph *g);

/* A graph of examples/graphs, NULL with the message set. */
graph *run_load(const char *path);

/* ---- Arguments on the device ---- */

struct run_buffers {
    void **host, **device;
    void *prepared, *workspace;
    int n;
};
/* `host` stays the caller's. False with the message set. */
bool run_upload(struct run_buffers *b, const graph *g, const coda_plan *p, void **host);
bool run_download(const struct run_buffers *b, const graph *g); /* outputs, into host                */
void run_release(struct run_buffers *b);

#endif
