/* util_delta.h -- gated delta rules, and what plain loops say of them. */
#ifndef UTIL_DELTA_H
#define UTIL_DELTA_H

#include "util_run.h"

struct delta_case {
    const char *name;
    coda_dtype dtype, state; /* of q, k and v; of what comes before, 0: zeros */
    int64_t sequences, time; /* sequences 0: one, without a dimension for it */
    int64_t heads, key_heads, keys, values;
    bool norm, by_row, packed; /* packed: time is of all */
    enum {
        DELTA_ANY,
        DELTA_REPEATS, /* keys that are nearly one, beta 1, no decay */
        DELTA_KEEPS,   /* no decay */
        DELTA_FORGETS  /* some tokens keep nothing, others all */
    } kind;
    bool in_place; /* what comes before is a state, to which after is assigned */
};
extern const struct delta_case delta_cases[];
extern const int delta_case_count;
struct delta_case delta_draw(uint64_t seed);

/* Its outputs: o, k, decay, beta, and after, if it is not in place. */
graph *delta_graph(const struct delta_case *c);
/* What is before the sequences, as dense doubles, which free() takes; NULL: zeros. */
double *delta_before(const struct delta_case *c, const graph *g, void **args);
/* How far apart what is in args and loops over tokens in fp64 are, over rms. The loops take k, decay and beta
 * as the run has left them in its outputs. `before` is from ahead of the run, by coda_evaluate or a plan. */
struct delta_errors {
    double o, after;
    double terms, o_terms; /* not errors: how long the terms of their sums are, which may cancel */
};
struct delta_errors delta_errors(const struct delta_case *c, const graph *g, void **args,
                                 const double *before, bool evaluated);
/* The larger one, of coda_evaluate's. */
double delta_difference(const struct delta_case *c, const graph *g, void **args, const double *before);
/* The larger one of a plan's, in parts of what is allowed: of states 1e-5 in fp32, 1e-2 in bf16; by
 * chunks, 2^-18 of `terms` in fp32 and 2^-8 of `o_terms` in bf16 if that is more, as where keys repeat. */
double delta_parts(const struct delta_case *c, const graph *g, void **args, const double *before);
/* The same of one sequence without a dimension for it, in place, that goes by runs of so many tokens. `run`
 * runs a graph where its arguments lie. -1: it failed. */
double delta_cut(const struct delta_case *c, const int64_t *tokens, int runs, uint64_t seed,
                 bool (*run)(const graph *g, void **args));
/* Bytes in which what the first of several sequences leaves differs from what it leaves alone. -1: a run
 * failed. */
int64_t delta_company(const struct delta_case *c, uint64_t seed, bool (*run)(const graph *g, void **args));
/* What is allowed of run_worst_error. */
double delta_allowed(const struct delta_case *c);

/* Some tokens of one sequence, 2 heads of 24 x 40: q, k [rows, 24], v [rows, 80], decay, beta [rows, 2], the
 * state and o. */
enum { DELTA_PIECE_KEYS = 24, DELTA_PIECE_VALUES = 40, DELTA_PIECE_HEADS = 2 };
graph *delta_piece(int64_t rows);

#endif
