/*
 * shapes.h -- a plan of a graph with symbols: one exact plan for each binding that was met, the last ones
 * kept. The coda_plan that a caller holds is the exact plan of the largest values, and has the others beside
 * it. All calls may run in several threads.
 */
#ifndef SHAPES_H
#define SHAPES_H

#include "executable.h"

/* All of coda_compile of a graph with symbols, whose arguments are checked: *out is a new plan, or the
 * message is set. */
coda_status shapes_compile(coda_plan **out, const graph *g, const coda_compile_options *opt);
void shapes_free(struct shapes *s); /* NULL is fine; before the plan */

/* The graph as it was given, with its symbols. */
const graph *shapes_graph(const struct shapes *s);

/* Who takes a shape, which decides whether a plan may be made for it. */
struct taker {
    const char *call; /* for messages */
    bool runs;        /* by coda_run_shaped on `stream`; else by a call that is there to wait */
    coda_stream stream;
};
/* The exact plan for these values, which are checked, one for each symbol: found, awaited while another
 * thread makes it, or made. It stays until it is given back. */
struct shape;
coda_status shapes_take(struct shape **out, const coda_plan *p, const struct taker *by, const int64_t *dims);
const coda_plan *shape_plan(const struct shape *s);
void shapes_give(const coda_plan *p, struct shape *s);

/* The kernels of all shapes, compiled, in a plan that has nothing else; with those for any number of rows
 * where the policy may want them. A plan that is only planned has their texts. */
struct gathering {
    const char *call; /* for messages */
    bool load;        /* on a GPU: runs find them */
    /* Asked before some are begun, with the number of those that are done, and in the end; false ends it,
     * which is no failure. May be NULL. */
    bool (*go_on)(void *context, const coda_plan *gathered, int done);
    void *context;
};
coda_status shapes_gather(coda_plan **out, const coda_plan *p, const struct gathering *how);

/* Appends a table of products' tiles by rows. */
coda_status shapes_print(const coda_plan *p, struct text *t);

/* From now on nothing is compiled; waits for what is. */
void shapes_seal(const coda_plan *p);

/* The most that a run of this shape takes; nothing is compiled. */
coda_status shapes_workspace(const coda_plan *p, const int64_t *dims, int64_t *out);
/* What a run of this shape costs, with its best kernels: clock cycles of the GPU that the plan is for, or of
 * the first row of targets.def; on the CPU device, bytes and what takes as long. */
coda_status shapes_price(const coda_plan *p, const int64_t *dims, double *out);
/* buckets.c: values of a symbol, rising, the first `most` of *count: what lies between may be rounded up to
 * the next one for so many per cent of its price at most. */
struct bucket_request {
    int symbol, percent;
};
coda_status shapes_buckets(const coda_plan *p, const struct bucket_request *w, int64_t *out, int most,
                           int *count);
/* Is its best plan there? */
bool shapes_have(const coda_plan *p, const int64_t *dims);
void shapes_stats(const coda_plan *p, coda_shape_stats *out);

#endif
