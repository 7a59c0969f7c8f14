/* util_sample.h -- graphs that draw columns of rows, and what the formula says of them, as transformers has
 * it. */
#ifndef UTIL_SAMPLE_H
#define UTIL_SAMPLE_H

#include "util_run.h"

enum {
    SAMPLE_TOP_K = 1,
    SAMPLE_TOP_P = 2,
    SAMPLE_MIN_P = 4,
    SAMPLE_BIAS = 8,
    SAMPLE_LOGPROB = 16,
    SAMPLE_ALL = 31
};

struct sample_case {
    const char *name;
    coda_dtype dtype;
    int64_t batch, rows, columns; /* of the logits; batch 0: they have rank 2 */
    int64_t inner;                /* they are a product over so many; 0: an input */
    int options;                  /* SAMPLE_*: what is there beside a temperature */
    bool specials;                /* of an input: NaN and infinities are among its elements */
    int launches;                 /* fused */
};
extern const struct sample_case sample_cases[];
extern const int sample_case_count;

/* Outputs: "id", and with SAMPLE_LOGPROB "logprob". Its leaves have names. */
graph *sample_graph(const struct sample_case *c);
/* As random_args, with the case's elements, which 16 bits hold exactly, as they do all products. */
void **sample_args(const struct sample_case *c, const graph *g, uint64_t seed, bool evaluate);
/* Results that are not the formula's; of evaluate they are doubles. */
int64_t sample_differences(const struct sample_case *c, const graph *g, void **args, bool evaluate);

/* softmax(x / t) of what the limits keep. */
struct sample_limits {
    double t, k, p, min_p;
};
void sample_probabilities(const double *x, int64_t n, const struct sample_limits *l, double *out);

#endif
