/* util_gates.h -- a few tokens of a gated delta rule whose decays and betas are maps of a product's columns,
 * and behind which there may be a gated norm, as graphs whose launches are counted. */
#ifndef UTIL_GATES_H
#define UTIL_GATES_H

#include "util_run.h"

struct gates_case {
    const char *name;
    const char *lines;  /* they make %decay and %beta of %a, %b, %bias and %rate */
    const char *behind; /* they make %y of %oh and %zh, o and gates by heads, and %gain; NULL: y is o */
    int tokens, sequences;
    bool packed;
    int launches; /* of an H200 */
};
extern const struct gates_case gates_cases[];
extern const int gates_case_count;

graph *gates_graph(const struct gates_case *c);
/* The largest error of a run on the host, or a GPU, beside coda_evaluate; -1 with the message set. */
double gates_error(const struct gates_case *c, uint64_t seed, const coda_compile_options *opt, bool on_gpu);
/* What is allowed of it: a norm makes small numbers large, and what they err by. */
double gates_allowed(const struct gates_case *c);

#endif
