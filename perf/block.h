/*
 * block.h -- a LLaMA-7B block over `dim T = 1..4096`, with memory for the largest, as measurements of plans
 * for all numbers of tokens run it; and the plan of one number of tokens beside it.
 */
#ifndef BLOCK_H
#define BLOCK_H

#include "machine.h"

enum { BLOCK_TOKENS = 4096, BLOCK_HIDDEN = 4096, BLOCK_ARGS = 8 };

struct block {
    struct machine m;
    coda_cache *cache; /* in which all plans look */
    coda_graph *g;
    coda_plan *plan;
    address at[BLOCK_ARGS], work, prepared;
    void *args[BLOCK_ARGS];
};

/* Ends the program if a call of the library failed. */
void good(coda_status s, const char *what);
uint64_t random_bits(uint64_t *state);

/* The graph, and its plan by CODA_POLICY_BACKGROUND. */
void block_compile(struct block *b);
/* Arguments, prepared memory and workspace of the largest; the plan's constants are prepared. Without
 * `random` all are 0. */
void block_memory(struct block *b, bool random);
void block_wait(const struct block *b);
/* Runs n tokens: microseconds of the host's time. */
double block_run(const struct block *b, int64_t n);
/* The last row of the output of n tokens, once they have run. */
void block_last(const struct block *b, int64_t n, uint16_t *row);
/* |a - b| / |b|, Euclidean, of two such rows. */
double block_distance(const uint16_t *a, const uint16_t *b);

/* A plan of n tokens alone. */
coda_plan *block_exact(const struct block *b, int64_t n);
void block_run_exact(const struct block *b, const coda_plan *exact);
/* BLOCK_RUNS runs of it, or of the plan of all if it is NULL, captured. */
enum { BLOCK_RUNS = 8 };
replay block_capture(const struct block *b, const coda_plan *exact, int64_t n);
/* Milliseconds of one of them, by events. */
double block_replay(const struct block *b, replay r, const event e[2]);

#endif
