/* util_token.h -- one token of a layer of Mamba, from its product to its scan: a graph in which fusion has
 * much to do. */
#ifndef UTIL_TOKEN_H
#define UTIL_TOKEN_H

#include "util_run.h"

struct token_case {
    const char *name;
    coda_dtype dtype;
    int width, inner, taps, rank, states; /* of the input, of x; of the convolution; of dt; of a column */
    int begins, ends;                     /* the token's sequence, as `starts` have it; ends below 0: none */
    unsigned flags;
    int launches; /* of an H200 */
};
enum {
    TOKEN_BIASED = 1,  /* the convolution has a bias, and so has dt */
    TOKEN_HALVES = 2,  /* the product is of x and the gate; else of 64 columns besides */
    TOKEN_BATCHED = 4, /* of rank 3, without starts */
    TOKEN_SHOWN = 8,   /* x, the states and dt are outputs, too */
};
extern const struct token_case token_cases[];
extern const int token_case_count;
struct token_case token_draw(uint64_t seed);

graph *token_graph(const struct token_case *c);
/* Arguments of that seed, with decays, starts, and matrices whose products are no larger than what they are
 * of; `evaluate`: as coda_evaluate wants them. */
void **token_args(const struct token_case *c, const graph *g, uint64_t seed, bool evaluate);
/* The largest error of a run on the host, or a GPU, beside coda_evaluate, in parts of what is allowed: 2e-2
 * of 16 bits, 1e-4 of fp32; -1 with the message set. */
double token_error(const struct token_case *c, uint64_t seed, const coda_compile_options *opt, bool on_gpu);

#endif
