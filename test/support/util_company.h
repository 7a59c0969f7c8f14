/*
 * util_company.h -- does a row get the same bits in whatever company? What CODA_BATCH_INVARIANT promises.
 *
 * A graph of T rows has a pool of them, and weights. Each run takes some rows of the pool, in some order; the
 * first answer that a row gets is what all others must be, from whatever plan. T may be the second dimension:
 * a row is then that of each index of the first. What has no T is the same in all runs, and no answer.
 */
#ifndef UTIL_COMPANY_H
#define UTIL_COMPANY_H

#include "coda.h"
#include "graph.h"

struct company_case {
    const char *name;
    const char *text; /* of a graph whose first symbol is T; leaves and outputs of T rows hold the pool's */
    bool ordered;     /* rows are a sequence: row i is always number i of it */
    bool large;       /* for a GPU alone */
};
/* The last ones are maps alone, whose kernel for any number of rows is the best for each: company_case_count
 * leaves them out, where better kernels are to take over, and company_case_all counts them. */
extern const struct company_case company_cases[];
extern const int company_case_count, company_case_all;

/* A random one: maps of vectors of weights and inputs, of rows and of samples, statistics, products. */
enum { COMPANY_MOST_ROWS = 4200 };
graph *company_graph(uint64_t seed);

struct company {
    graph *graph;            /* with its symbol */
    int64_t pool;            /* rows */
    int compared, different; /* answers to rows that had been asked before */
    char first[160];         /* difference */
    struct company_state *state;
};

/* With device memory by util_device.h, or the host's; false with the message set. */
bool company_open(struct company *c, const struct company_case *of, int64_t pool, uint64_t seed, bool on_gpu);
/* The same of a graph, which it takes; rows are in any order. */
bool company_open_graph(struct company *c, graph *g, int64_t pool, uint64_t seed, bool on_gpu);
void company_close(struct company *c);
/* A plan of exactly so many rows; of all numbers of them, if that is 0. NULL with the message set. */
coda_plan *company_plan(const struct company *c, int64_t rows, const coda_compile_options *opt);
/* So many rows, at most as many as the pool has, by a plan of that many, or of all numbers. */
bool company_ask(struct company *c, const coda_plan *p, int64_t rows);
/* All answers are numbers, and some were compared. */
bool company_makes_sense(const struct company *c);

#endif
