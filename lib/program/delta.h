/* delta.h -- the gated delta rule as one program, or as two, of which one makes for all chunks of tokens at
 * once what does not depend on states: what the other reads in the place of decay and beta. */
#ifndef DELTA_H
#define DELTA_H

#include "program.h"

enum {
    DELTA_CHUNK = 64,        /* tokens that tensor cores take together, ... */
    DELTA_LEAST_CHUNK = 32,  /* ... where a sequence has so many in the mean */
    DELTA_SLICE = 64,        /* columns of a state that a warpgroup has */
    DELTA_PREPARED = 13184,  /* bytes of a chunk and head: DeltaPrepared of delta_prepare.cuh; ... */
    DELTA_PREPARED_P = 16512 /* ... with P */
};

struct target;
/* Are there two programs? By numbers that are asked of guards. */
bool delta_prepares(const struct delta_spec *s, bool invariant, const struct target *t);

/* Is P prepared? Not where there is a block of two slices for each SM, which has time to make it. */
bool delta_prepares_p(const struct delta_spec *s, const struct target *t);

/* Bytes of what is left between them; on the CPU device decay and beta of each token and head, as floats. */
int64_t delta_prepared_bytes(const struct delta_spec *s);

/* A program's own uses, and the numbers of the rule. */
struct delta_spec delta_of_prepare(const struct delta_prepare_spec *s);

#endif
