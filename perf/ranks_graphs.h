/* ranks_graphs.h -- the graphs of perf/ranks: chains of exchanges, layers that are cut over ranks, a step of
 * training on each. */
#ifndef RANKS_GRAPHS_H
#define RANKS_GRAPHS_H

#include <stdbool.h>

#include "coda.h"

/* What is measured: a graph of some steps. */
struct work {
    void (*build)(coda_graph *g, const struct work *w, coda_value group);
    int64_t m, d, f;
    int ranks; /* over which weights are cut */
    bool exchanges;
    int steps;
    bool rows;     /* a step of an exchange has a residual and a norm */
    bool overlaps; /* CODA_OVERLAP */
    bool steady;   /* CODA_STEADY */
    bool rounds;   /* gradients are exchanged in bf16, as their weights are, else in fp32 */
};

void build_exchanges(coda_graph *g, const struct work *w, coda_value group);
/* Without RoPE and attention, in whose place a product of elements reads all that the product leaves. */
void build_layers(coda_graph *g, const struct work *w, coda_value group);
void build_pieces(coda_graph *g, const struct work *w, coda_value group);
/* Of uncut layers, m tokens each. */
void build_step(coda_graph *g, const struct work *w, coda_value group);

coda_plan *work_compile(const struct work *w); /* NULL: see coda_error() */

#endif
