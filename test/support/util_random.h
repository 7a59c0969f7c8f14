/* util_random.h -- random graphs and their arguments for property tests; a seed makes each again. */
#ifndef UTIL_RANDOM_H
#define UTIL_RANDOM_H

#include "graph.h"

/* ---- Numbers ---- */

struct random {
    uint64_t state;
};
uint64_t random_next(struct random *r);
int64_t random_below(struct random *r, int64_t n); /* 0 .. n-1; 0 for n <= 0 */
bool random_chance(struct random *r, int percent);
double random_normal(struct random *r); /* mean 0, variance 1, within +-6 */

/* $CODA_SEED if it is set, else a seed from the clock; printed once, to repeat a failing run. */
uint64_t random_seed(void);

/* ---- Graphs ---- */

struct random_options {
    int patterns;     /* from one operation to an attention layer each; 0: 8 */
    int64_t most_dim; /* 0: 48 */
    coda_dtype dtype; /* of the float leaves; 0: each graph draws its own, with casts */
    bool states;      /* that runs write to, among the leaves */
    bool dense;       /* leaves and outputs without strides */
    bool wide;        /* two of three leaves of integers are int64 */
    bool loss;        /* one output, of one element: what comes of the last value, times random numbers */
    bool fixed;       /* no patterns that draw from the tables of operations and primitives, which grow */
    bool exact;       /* only what the rewriter changes bit for bit: no norm, softmax or loss, and
                         nothing that it could carry past a matmul */
};
/* Never poisoned; opt may be NULL. Values stay of order 1, so that 16-bit kernels can run it. */
graph *random_graph(uint64_t seed, const struct random_options *opt);
/* Fewer than 1e5 elements in all, and no argument over 1 MB: a fuzzer may run it. */
bool random_is_small(const graph *g);
/* Is it a graph of one rank? The ranks of others run side by side: util_spmd.h. */
bool random_is_alone(const graph *g);

/* ---- Arguments ---- */

/* Host buffers in the order of coda_run: leaves hold data (integers valid for their readers, weights
 * scaled by their fan-in, padding poisoned with 0xFF), outputs nothing but 0xFF. With `evaluate`,
 * outputs have room for dense doubles, as coda_evaluate wants. */
void **random_args(const graph *g, uint64_t seed, bool evaluate);
/* What the caller has in an output that runs add to; random_args has it, too. */
void random_begin_sum(const graph *g, int output, void *base, bool evaluate);
void random_args_free(const graph *g, void **args);
/* Bytes from the first element of a strided tensor to the end of the last. */
size_t random_arg_bytes(const struct type *t, const int64_t *stride);

#endif
